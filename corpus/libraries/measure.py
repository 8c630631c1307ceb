"""Makes one call in eager execution, with stock torch.compile, and mended, and compares them.

Each way has a copy of what is called and of its arguments, and the same seeds. Whether stock breaks
is asked with ``fullgraph=True``; only what breaks is mended.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from time import perf_counter
from types import CodeType
from typing import Any, Final

import numpy
import torch
from torch import Tensor
from torch._dynamo.convert_frame import register_bytecode_hook
from torch.nn import Module
from torch.utils._pytree import tree_leaves

import bcmend
from corpus.libraries.call import Call, NoCall
from corpus.libraries.examples import call_of_examples
from corpus.libraries.guesses import guessed_call
from corpus.libraries.names import found
from corpus.libraries.record import Outcome, Record
from corpus.models.compare import differences
from corpus.models.measure import CountingBackend

__all__ = ["call_of", "measure"]

#: How far results may be from eager ones, as a share of the largest number.
_TOLERANCE: Final = {"eager": 0.0, "inductor": 1e-4}

#: What torch.compile notes on a module.
_MARK: Final = "_is_torch_compile"

OnStage = Callable[[str], None]


def measure(name: str, backend: str, on_stage: OnStage) -> Record:
    """Return what became of a function or class; ``on_stage`` is told what is done."""
    on_stage("arguments")
    target = found(name)
    try:
        call = call_of(target)
    except NoCall as reason:
        return Record(name, backend, Outcome.NO_CALL, why=str(reason)[:200])
    if not _takes_tensors(call):
        return Record(name, backend, Outcome.NO_CALL, why="no tensor is given to it")
    on_stage("eager")
    eager, *again = (_shown(call.copied(), Call.made) for _ in range(2))
    if list(differences(eager, again[0])):
        return Record(name, backend, Outcome.NO_CALL, why="eager execution differs from itself")
    on_stage("stock")
    reason = _failure(call, _compiled(backend, fullgraph=True))
    if reason is None:
        return Record(name, backend, Outcome.WHOLE, how=call.how)
    stock = _timed(call, _compiled(backend))
    on_stage("mended")
    return _mended(Record(name, backend, Outcome.MENDED, how=call.how), call, eager, reason, stock)


def call_of(target: Any) -> Call:
    """Return a call of a function or class, of its examples or guessed. Raises ``NoCall``."""
    torch.manual_seed(0)
    try:
        call = call_of_examples(target)
        _shown(call.copied(), Call.made)
    except Exception as reason:
        # whatever an example says: it does not run here, and others may
        first = reason
    else:
        return call
    torch.manual_seed(0)
    try:
        return guessed_call(target)
    except NoCall as second:
        raise NoCall(f"{second}; examples: {_first_line(first)}") from second


def _takes_tensors(call: Call) -> bool:
    parts = tree_leaves((call.arguments, call.named))
    return isinstance(call.target, Module) or any(isinstance(each, Tensor) for each in parts)


def _shown(call: Call, made: Callable[[Call], Any]) -> dict[str, Any]:
    """Make a call, and return its result and what became of its arguments."""
    torch.manual_seed(1)
    random.seed(1)
    numpy.random.seed(1)
    with torch.set_grad_enabled(isinstance(call.target, Module) and call.target.training):
        result = made(call)
    return {"result": result, "arguments": (call.arguments, call.named), "of": _state(call.target)}


def _state(target: Any) -> Any:
    return dict(target.state_dict()) if isinstance(target, Module) else None


def _compiled(
    backend: str, *, fullgraph: bool = False, counter: CountingBackend | None = None
) -> Callable[[Call], Any]:
    """Return what makes a call compiled; ``counter`` counts its graphs, and those before."""

    def made(call: Call) -> Any:
        torch._dynamo.reset()
        chosen = counter or _counting(backend)
        compiled = torch.compile(call.target, backend=chosen, fullgraph=fullgraph)
        vars(call.target).pop(_MARK, None)  # what is returned may hold the module
        return compiled(*call.arguments, **call.named)

    return made


def _counting(backend: str) -> CountingBackend:
    return CountingBackend("counting" if backend == "eager" else backend)


def _timed(call: Call, made: Callable[[Call], Any]) -> tuple[float, dict[str, Any], str]:
    """Return the seconds of a call, what it showed and its error in one line."""
    copied, start = call.copied(), perf_counter()
    shown, error = {}, ""
    try:
        shown = _shown(copied, made)
    except Exception as failure:
        # what a compiled call raises is a row of the table
        error = _first_line(failure)
    return perf_counter() - start, shown, error


def _failure(call: Call, made: Callable[[Call], Any]) -> str | None:
    """Return why a call is not one graph, as Dynamo names it; ``None`` where it is."""
    try:
        _shown(call.copied(), made)
    except Exception as error:
        # any error of a compiler, or of what it compiles, is a reason
        return str(getattr(error, "gb_type", None) or _first_line(error))
    return None


def _mended(record: Record, call: Call, eager: dict[str, Any], reason: str, stock: Any) -> Record:
    stock_seconds, shown_by_stock, stock_error = stock
    of_stock = stock_error or next(_apart(eager, shown_by_stock, record.backend), "")
    known = record.with_(
        stock=reason, stock_seconds=stock_seconds, stock_differs=of_stock, breaks=True
    )
    with _patched(call.copied()) as copied:
        start = perf_counter()
        failure = _in_one_graph(copied, record.backend)
        seconds = perf_counter() - start
        if isinstance(failure, dict):
            apart = next(_apart(eager, failure, record.backend), "")
            outcome = Outcome.DIFFERS if apart else Outcome.MENDED
            return known.with_(outcome=outcome, why=apart, seconds=seconds)
        refusals = _refusals(copied.target)
    torch._dynamo.reset()
    with _patched(call.copied()) as copied:
        seconds, shown, error = _timed(copied, _compiled(record.backend))
    apart = error or next(_apart(eager, shown, record.backend), "")
    differs = bool(apart) and apart != of_stock and not (error and stock_error)
    return known.with_(
        outcome=Outcome.DIFFERS if differs else Outcome.BREAKS,
        why=apart if differs else failure,
        refusals=refusals,
        seconds=seconds,
    )


def _in_one_graph(call: Call, backend: str) -> dict[str, Any] | str:
    """Return what a call in one graph shows, or why it is none.

    A call that sets something up runs in plain Python, once: then it is the next one that counts.
    One that computes nothing, as where a matrix stays lazy, is captured and has no graph.
    """
    counter = _counting(backend)
    try:
        with _captured() as frames:
            shown = _shown(call, _compiled(backend, fullgraph=True, counter=counter))
        if not counter.graphs and not frames:
            with _captured() as frames:
                _shown(call, _compiled(backend, fullgraph=True, counter=counter))
            is_whole = counter.graphs == 1 or (not counter.graphs and len(frames) == 1)
            return shown if is_whole else f"{counter.graphs} graphs in the next call"
        return shown
    except Exception as error:
        # as with stock
        return str(getattr(error, "gb_type", None) or _first_line(error))


@contextlib.contextmanager
def _captured() -> Iterator[list[CodeType]]:
    """Yield the code objects that Dynamo captures in a block."""
    found: list[CodeType] = []
    handle = register_bytecode_hook(lambda code, _: found.append(code))
    try:
        yield found
    finally:
        handle.remove()


@contextlib.contextmanager
def _patched(call: Call) -> Iterator[Call]:
    bcmend.patch(call.target)
    try:
        yield call
    finally:
        bcmend.unpatch(call.target)


def _apart(eager: dict[str, Any], other: dict[str, Any], backend: str) -> Iterator[str]:
    return differences(eager, other, "", _TOLERANCE[backend])


def _refusals(target: Any) -> tuple[str, ...]:
    """Return the sites that were left as they are, as "reason: more of it"."""
    sites = bcmend.report(target).sites
    refused = [each for each in sites if each.status in ("refused", "withdrawn")]
    return tuple(dict.fromkeys(f"{each.refusal}: {each.detail}"[:200] for each in refused))


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).strip().splitlines()] or [""]
    return f"{type(error).__name__}: {lines[0]}"[:200]
