"""Run a piece of a test in the middle of a trace, with the translator and models of values."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

import torch

import bcmend
from bcmend.dynamo import compat
from bcmend.dynamo.values import constant
from bcmend.knowledge.substitute_rows import TABLE
from bcmend.knowledge.qualified_names import resolved
from bcmend.tracing.numbers import scalars
from bcmend.tracing.sites.site_table import LiveSite
from bcmend.tracing.substitutes import dispatch
from tests.equivalence import fresh
from tests.tracing.plain_trace import calls_answered


def _probe(*inputs: Any) -> Any:
    return inputs


def _program(one: Any = None, other: Any = None, third: Any = None) -> Any:
    print("recorded, so that there is something to mend")
    return _probe(one, other, third)


def trace(body: Callable[..., Any], *inputs: Any, is_mended: bool = True) -> Any:
    """Return what a program returns whose value is the model that ``body`` gives.

    ``body(tx, *models)`` is called while a call with ``inputs`` is traced, in mended code that is
    captured whole or in code that is not patched. A result that is no model stands for ``None``.
    """

    def answer(tx: compat.Tracer, *models: Any) -> Any:
        found = body(tx, *models[: len(inputs)])
        return found if isinstance(found, compat.VariableTracker) else constant(None)

    program = fresh(_program)
    torch._dynamo.reset()
    with calls_answered(_probe, answer), contextlib.redirect_stdout(io.StringIO()):
        try:
            if is_mended:
                return bcmend.compile(program, backend="eager", fullgraph=True)(*inputs)
            return torch.compile(program, backend="eager")(*inputs)
        finally:
            bcmend.unpatch()
            torch._dynamo.reset()


def during_trace(body: Callable[..., Any], *inputs: Any, is_mended: bool = True) -> Any:
    """Return what ``body`` returns in the middle of a trace; the program gets ``None``."""
    found: list[Any] = []
    trace(lambda *given: found.append(body(*given)), *inputs, is_mended=is_mended)
    return found[-1]


def computed_number(tx: Any, tensor: Any) -> Any:
    """Return an unbacked number: that of an input would have a known value, and a guard."""
    return scalars.take(tx, tensor.call_method(tx, "clone", [], {}))


def substituted(tx: Any, function: Any, *args: Any, owner: Any = None, **kwargs: Any) -> Any:
    """Return a call as an answer gets it; ``function`` may be the name of a row of the table."""
    name = function if isinstance(function, str) else f"torch.{function.__name__}"
    site = LiveSite(name, "call", _program.__code__)
    row = TABLE[name]
    called = resolved(name) if isinstance(function, str) else function
    return dispatch.ReplacedCall(tx, name, owner, args, kwargs, called, row=row, site=site)
