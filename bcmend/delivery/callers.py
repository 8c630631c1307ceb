"""The callers that a deferred call with a ``stacklevel`` counts.

When a record is delivered the traced functions have returned. The call is made inside stand-ins for
them, which have the file, line, name and globals of their frames. Callers that were not traced are
read off the frames around the boundary.
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

from bcmend.bytecode.decode import operation
from bcmend.bytecode.opcodes import STARRED_CALLS
from bcmend.delivery.numbered import Numbered
from bcmend.knowledge.own_code import FILES_BEGIN

#: A data-dependent level.
UNKNOWN: Final = -1
#: The number of callers for such a level, and for a call made again. Each takes 2.4 us and a frame
#: of Python's stack: 20 take 48 us. A level that counts further names a caller of the delivery.
_MOST: Final = 20

#: Its ``run`` and ``run_in_place`` are called from the frame that Dynamo entered.
_BOUNDARY: Final = f"{FILES_BEGIN}tracing/entry/boundary.py"
_DYNAMO: Final = f"{Path(torch.__file__).parent / '_dynamo'}/"
#: The outermost frame of a call of a module.
_MODULE_CALL: Final = torch.nn.Module.__call__.__code__

StandIn = Callable[[Callable[[], Any]], Any]


@dataclass(frozen=True, slots=True)
class CallerFrame:
    """A frame, and the function that stands for it."""

    code: CodeType
    names: dict[str, Any] = field(compare=False)
    line: int

    def stand_in(self) -> StandIn:
        code = self.code
        shown = _TEMPLATE.replace(
            co_filename=code.co_filename,
            co_name=code.co_name,
            co_qualname=code.co_qualname,
            co_firstlineno=self.line,
        )
        return FunctionType(shown, self.names)


#: Of a function whose call is in its first line.
_TEMPLATE: Final = (lambda call: call()).__code__


class Chain(list[CallerFrame]):
    """The callers of a record that were traced, innermost first."""


#: A record holds the number of its own.
CHAINS: Final[Numbered[Chain]] = Numbered()


def call_inside(chain: int, level: int, action: Callable[..., Any], inputs: tuple[Any, ...]) -> Any:
    """Call ``action(*inputs)`` inside as many of its callers as ``level`` counts."""
    count = _MOST if level == UNKNOWN else level - 1
    callers = CHAINS[chain][:count]
    callers += _callers_around(sys._getframe(1), count - len(callers))
    return _made_inside(callers, partial(action, *inputs))


def call_at_its_place(level: int, action: Callable[..., Any], inputs: tuple[Any, ...]) -> Any:
    """Call ``action(*inputs)`` behind a graph break, with as many callers as ``level`` counts.

    Between the frame that makes the call and the callers are those of Dynamo and of the boundary.
    """
    count = _MOST if level == UNKNOWN else level - 1
    boundary = _boundary_around(sys._getframe(1))
    callers = [] if boundary is None else _callers_around(boundary, count)
    return _made_inside(callers, partial(action, *inputs))


def is_inside_a_boundary() -> bool:
    """Return whether the frame that asks is of code that a boundary has called."""
    return _boundary_around(sys._getframe(1)) is not None


def _boundary_around(frame: FrameType | None) -> FrameType | None:
    while frame is not None and not is_of_a_boundary(frame.f_code):
        frame = frame.f_back
    return frame


def call_as_entered(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Call a function inside stand-ins for the callers of the boundary around it.

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


def _callers_around(frame: FrameType, count: int) -> list[CallerFrame]:
    found = (CallerFrame(each.f_code, each.f_globals, _line_of(each)) for each in _around(frame))
    return list(islice(found, max(count, 0)))


def _made_inside(callers: Sequence[CallerFrame], call: Callable[[], Any]) -> Any:
    for caller in callers:
        call = partial(caller.stand_in(), call)  # which has no frame of its own
    return call()


def _line_of(frame: FrameType) -> int:
    if frame.f_code is _MODULE_CALL:  # a module compiled in place is called elsewhere
        return call_of_a_module().lineno or frame.f_lineno
    return frame.f_lineno


def _around(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames around the one that Dynamo entered, without Dynamo's and bcmend's."""
    is_entered = True
    while frame is not None:
        code, file = frame.f_code, frame.f_code.co_filename
        if file.startswith(FILES_BEGIN):
            is_entered = is_entered or is_of_a_boundary(code)
        elif file.startswith(_DYNAMO):
            pass
        elif is_entered:
            is_entered = False
        elif not _is_of_a_wrapper(frame):
            yield frame
        frame = frame.f_back


def is_of_a_boundary(code: CodeType) -> bool:
    """Return whether code is what a shell calls, or what runs in place of a frame."""
    return code.co_name in ("run", "run_in_place") and code.co_filename == _BOUNDARY


def _is_of_a_wrapper(frame: FrameType) -> bool:
    """Return whether a frame is of a call of a module that ``torch.compile`` has wrapped."""
    if frame.f_code.co_filename != _MODULE_CALL.co_filename:
        return False  # asking a frame for its variables makes it keep them
    return type(frame.f_locals.get("self")).__module__.startswith("torch._dynamo")


@cache
def call_of_a_module() -> dis.Positions:
    """Return where the outermost frame of a call of a module calls the next."""
    return calls_in(_MODULE_CALL)[-1]


def calls_in(code: CodeType) -> list[dis.Positions]:
    """Return the positions of the calls that pass all arguments on."""
    return [
        each.positions
        for each in dis.get_instructions(code)
        if operation(each) in STARRED_CALLS and each.positions and each.positions.lineno
    ]
