"""The callers that a deferred call with a ``stacklevel`` counts.

When a record is delivered the functions that were traced have returned. A call that is attributed
to one of its callers is therefore made inside stand-ins for them: functions of one line that have
the file, the line, the name and the globals of the frame that they stand for. While the call is
traced, Dynamo's frames tell those that it inlined; the rest is read off the frames around the
boundary when the record is delivered.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, Final

import torch
from torch._dynamo.eval_frame import OptimizedModule
from torch._dynamo.source import AttrSource
from torch._dynamo.variables import TupleVariable
from torch._dynamo.variables.base import VariableTracker

from bcmend.names import BUFFER, FUNCTION
from bcmend.runtime.merge import constant

__all__ = [
    "CALLING_A_MODULE",
    "UNKNOWN",
    "call_as_entered",
    "call_inside",
    "calls_a_module",
    "calls_of_a_module",
    "inside",
    "is_a_part",
]

#: A level that only the call itself tells.
UNKNOWN: Final = -1
#: How many callers there are for such a level.
_MOST: Final = 20

_OWN: Final = f"{Path(__file__).parent.parent}/"
_DYNAMO: Final = f"{Path(torch._dynamo.__file__).parent}/"

StandIn = Callable[[Callable[[], Any]], Any]


@dataclass(frozen=True, slots=True)
class _Caller:
    """A frame to be stood for."""

    code: CodeType
    names: dict[str, Any] = field(compare=False)
    line: int

    def stand_in(self) -> StandIn:
        return FunctionType(_standing_for(self.code, self.line), self.names)


def _template() -> StandIn:
    return lambda call: call()


@cache
def _standing_for(code: CodeType, line: int) -> CodeType:
    return _template().__code__.replace(
        co_filename=code.co_filename,
        co_name=code.co_name,
        co_qualname=code.co_qualname,
        co_firstlineno=line,
    )


#: The callers of records that were traced; a record holds the position of its own.
_TRACED: Final[list[tuple[_Caller, ...]]] = []


# While a call is traced


def inside(
    tx: Any, level: int, action: VariableTracker, inputs: VariableTracker
) -> tuple[VariableTracker, VariableTracker]:
    """Return action and inputs of a record that makes its call inside stand-ins of its callers."""
    found = tuple(_inlined(tx))
    if found not in _TRACED:
        _TRACED.append(found)
    source = AttrSource(tx.import_source(__name__), call_inside.__name__)
    function: VariableTracker = VariableTracker.build(tx, call_inside, source)
    chain = constant(_TRACED.index(found))
    return function, TupleVariable([chain, constant(level), action, inputs])


def _inlined(tx: Any) -> Iterator[_Caller]:
    """Yield the callers of the frame ``tx`` up to the one that Dynamo entered, innermost first."""
    frame = tx
    while frame.parent is not None:
        inner, frame = frame, frame.parent
        if calls_a_module(frame) and inner.f_code not in CALLING_A_MODULE:
            yield from _frames_of_a_module_call()
        if not is_a_part(inner.f_code):
            yield _Caller(frame.f_code, frame.f_globals, _line_of(frame))


def is_a_part(code: CodeType) -> bool:
    """Whether code stands for a part of the function that calls it: a region, or a body."""
    arguments = code.co_varnames[: code.co_argcount]
    return FUNCTION in arguments or BUFFER in arguments


def _line_of(frame: Any) -> int:
    positions = frame.current_instruction.positions
    line = frame.lineno if positions is None else positions.lineno
    return int(line or frame.f_code.co_firstlineno)


def calls_a_module(frame: Any) -> bool:
    """Whether what a frame is calling is a module: Dynamo goes to its ``forward`` at once."""
    above = set() if frame.parent is None else set(frame.parent.nn_module_stack)
    return not set(frame.nn_module_stack) <= above


#: The code between a call of a module and its ``forward``, outermost first.
CALLING_A_MODULE: Final = (
    torch.nn.Module._wrapped_call_impl.__code__,
    torch.nn.Module._call_impl.__code__,
)


@cache
def _frames_of_a_module_call() -> tuple[_Caller, ...]:
    """Return the frames between a ``forward`` and the call of its module, innermost first."""
    names = torch.nn.Module._call_impl.__globals__
    calls = calls_of_a_module()
    return tuple(_Caller(code, names, at.lineno or 0) for code, at in reversed(calls))


@cache
def calls_of_a_module() -> tuple[tuple[CodeType, dis.Positions], ...]:
    """Return where the frames between a call of a module and its ``forward`` are, outermost first.

    That is so for a module without hooks; Dynamo itself goes through these frames for others.
    """
    outer, inner = CALLING_A_MODULE
    return (outer, _calls_in(outer)[-1]), (inner, _calls_in(inner)[0])


def _calls_in(code: CodeType) -> list[dis.Positions]:
    """Return the positions of the calls that pass all arguments on."""
    return [
        each.positions
        for each in dis.get_instructions(code)
        if each.opname == "CALL_FUNCTION_EX" and each.positions and each.positions.lineno
    ]


# When a record is delivered


def call_inside(chain: int, level: int, action: Callable[..., Any], inputs: tuple[Any, ...]) -> Any:
    """Call ``action(*inputs)`` as its callers did, as many of them as ``level`` counts."""
    count = _MOST if level == UNKNOWN else level - 1
    callers = list(_TRACED[chain][:count])
    callers += _callers_around(sys._getframe(1), count - len(callers))
    return _made_inside(callers, partial(action, *inputs))


def call_as_entered(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Call a function so that what it counts as callers are those of the boundary around it.

    The traceback of an exception does not show them twice.
    """
    callers = _callers_around(sys._getframe(1), _MOST)
    try:
        return _made_inside(callers, partial(function, *arguments))
    except BaseException as error:
        failure, entry = error, error.__traceback__
    for _ in range(len(callers) + 2):  # this function, the next, and the stand-ins
        entry = None if entry is None else entry.tb_next
    try:
        raise failure.with_traceback(entry)
    finally:
        del failure, entry  # they hold this frame


def _callers_around(frame: FrameType, count: int) -> list[_Caller]:
    found = (_Caller(each.f_code, each.f_globals, _plain_line_of(each)) for each in _around(frame))
    return list(islice(found, max(count, 0)))


def _made_inside(callers: Sequence[_Caller], call: Callable[[], Any]) -> Any:
    for caller in callers:
        call = partial(caller.stand_in(), call)  # which has no frame of its own
    return call()


def _plain_line_of(frame: FrameType) -> int:
    if frame.f_code is CALLING_A_MODULE[0]:  # a module compiled in place is called elsewhere
        return calls_of_a_module()[0][1].lineno or frame.f_lineno
    return frame.f_lineno


def _around(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames around the one that Dynamo entered, as they would be without it."""
    is_entered = True
    while frame is not None:
        code, file = frame.f_code, frame.f_code.co_filename
        if file.startswith(_OWN):
            is_entered = is_entered or code.co_name == "run"
        elif file.startswith(_DYNAMO):
            pass
        elif is_entered:
            is_entered = False
        elif not _is_of_a_wrapper(frame):
            yield frame
        frame = frame.f_back


def _is_of_a_wrapper(frame: FrameType) -> bool:
    """Whether a frame is of the call of what ``torch.compile`` made of a module."""
    return frame.f_code in CALLING_A_MODULE and isinstance(
        frame.f_locals.get("self"), OptimizedModule
    )
