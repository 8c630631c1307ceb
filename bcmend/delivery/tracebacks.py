"""Makes tracebacks of exceptions that were raised while a call was traced.

The frames that such an exception went through have been left, or were never run. Each entry gets
the frame of a generator that has not begun, whose code has the name and the file of the function
and one place for all instructions. Such a frame has no caller, and holds nothing of the call.
"""

from __future__ import annotations

import ast
import dis
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType, TracebackType
from typing import Any, Final

from bcmend.bytecode.opcodes import YIELDS
from bcmend.delivery.numbered import Numbered

#: Line, last line, column, column behind the end; -1 for what is not known.
Place = tuple[int, int, int, int]

#: An exception, the number of its route, its context (``None`` for what the caller handles), its
#: cause, and whether the context is hidden.
Row = tuple[BaseException, int, "BaseException | None", "BaseException | None", bool]


@dataclass(frozen=True, slots=True)
class TracebackEntry:
    """One function that an exception went through, and where in it."""

    code: CodeType
    names: dict[str, Any] = field(compare=False)
    place: Place


def place_of(positions: dis.Positions | None) -> Place | None:
    """Return the place of an instruction; ``None`` where not even the line is known."""
    if positions is None or positions.lineno is None:
        return None
    line = positions.lineno
    end, column, end_column = positions.end_lineno, positions.col_offset, positions.end_col_offset
    if end is None or column is None or end_column is None:
        return line, line, -1, -1
    return line, end, column, end_column


class Route(list[TracebackEntry]):
    """The entries of one exception, the outermost first."""


#: A record holds the numbers of its own.
ROUTES: Final[Numbered[Route]] = Numbered()


def traceback_of(entries: Sequence[TracebackEntry]) -> TracebackType | None:
    """Return a traceback that shows ``entries``, the outermost first."""
    found = None
    for entry in reversed(entries):
        code = _standing_for(entry.code, entry.place)
        frame = FunctionType(code, entry.names)().gi_frame
        # Any instruction that is at the place of all.
        at = next(i.offset for i in dis.get_instructions(code) if i.opname in YIELDS)
        found = TracebackType(found, frame, at, entry.place[0])
    return found


def _standing_for(code: CodeType, place: Place) -> CodeType:
    """Return the code of a generator with the names of ``code``, all of it at one place."""
    module = ast.parse("def generator(): yield")
    for node in ast.walk(module):
        if isinstance(node, (ast.stmt, ast.expr)):
            node.lineno, node.end_lineno, node.col_offset, node.end_col_offset = place
    compiled = compile(module, code.co_filename, "exec")
    generator = next(each for each in compiled.co_consts if isinstance(each, CodeType))
    return generator.replace(co_name=code.co_name, co_qualname=code.co_qualname)


def call_handling(
    rows: tuple[Row, ...], is_handled: bool, action: Callable[..., Any], inputs: tuple[Any, ...]
) -> None:
    """Call ``action(*inputs)`` with exceptions as they were.

    Where ``is_handled``, the first of them is the one that is being handled.
    """
    around = sys.exc_info()[1]
    _describe(rows, around)
    if not is_handled:
        action(*inputs)
        return
    try:
        raise rows[0][0]
    except BaseException:
        _describe(rows, around)  # raising it has added this function
        action(*inputs)


def _describe(rows: Iterable[Row], around: BaseException | None) -> None:
    for error, route, context, cause, hides_context in rows:
        error.__traceback__ = traceback_of(ROUTES[route])
        error.__context__ = around if context is None else context
        error.__cause__ = cause
        error.__suppress_context__ = hides_context
