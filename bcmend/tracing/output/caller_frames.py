"""The callers of a frame being traced as eager execution has them.

Dynamo inlines functions, and skips the frames between the call of a module and its ``forward``.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from types import CodeType
from typing import Any, Final

from bcmend.delivery.callers import (
    CHAINS,
    CallerFrame,
    Chain,
    call_inside,
    call_of_a_module,
    calls_in,
)
from bcmend.dynamo import compat, frames
from bcmend.dynamo.values import Value, constant, function_of
from bcmend.names import BUFFER, FUNCTION

#: The code between a call of a module and its ``forward``, outermost first.
CALLING_A_MODULE: Final = (compat.MODULE_WRAPPED_CALL.__code__, compat.MODULE_CALL_IMPL.__code__)


def inside_stand_ins(
    tx: compat.Tracer, level: int, action: Value, inputs: Value
) -> tuple[Value, Value]:
    """Return action and inputs of a record that makes its call inside stand-ins of its callers."""
    chain = Chain(_inlined(tx))
    frames.keep_with(tx, chain)
    facts = constant(CHAINS.add(chain)), constant(level)
    return function_of(tx, call_inside), compat.TupleVariable([*facts, action, inputs])


def _inlined(tx: compat.Tracer) -> Iterator[CallerFrame]:
    """Yield the callers of the frame ``tx`` up to the one that Dynamo entered, innermost first."""
    for inner, frame in pairwise(frames.outwards(tx)):
        if calls_a_module(frame) and inner.f_code not in CALLING_A_MODULE:
            names = compat.MODULE_CALL_IMPL.__globals__
            for code, at in reversed(calls_of_a_module()):
                yield CallerFrame(code, names, at.lineno or 0)
        if not is_a_part(inner.f_code):
            yield CallerFrame(frame.f_code, frame.f_globals, _line_of(frame))


def is_a_part(code: CodeType) -> bool:
    """Return whether code is a region or a body, which is part of the function that calls it."""
    arguments = code.co_varnames[: code.co_argcount]
    return FUNCTION in arguments or BUFFER in arguments


def _line_of(frame: Any) -> int:
    positions = frame.current_instruction.positions
    line = frame.lineno if positions is None else positions.lineno
    return int(line or frame.f_code.co_firstlineno)


def calls_a_module(frame: Any) -> bool:
    """Return whether a frame is calling a module, whose ``forward`` Dynamo traces directly."""
    above = set() if frame.parent is None else set(frame.parent.nn_module_stack)
    return not set(frame.nn_module_stack) <= above


@cache
def calls_of_a_module() -> tuple[tuple[CodeType, dis.Positions], ...]:
    """Return the frames between a call of a module and its ``forward``, outermost first.

    That is for a module without hooks; Dynamo itself traces these frames for others.
    """
    outer, inner = CALLING_A_MODULE
    return (outer, call_of_a_module()), (inner, calls_in(inner)[0])
