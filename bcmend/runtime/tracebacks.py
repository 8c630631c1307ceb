"""Tracebacks of exceptions that were raised while a call was traced.

When a record is delivered, the frames that such an exception went through have long been left, or
were never run. A traceback names code objects, globals and positions, all of which the trace knows:
each entry gets the frame of a generator that has not begun, whose code has the name and the file of
the function and says of every instruction that it stands at the place of the entry. Such a frame
has no caller, and holds nothing of the call.
"""

from __future__ import annotations

import ast
import dis
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import CodeType, FunctionType, TracebackType
from typing import Any, Final

__all__ = ["Entry", "call_handling", "number_of", "place_of", "traceback_of"]

#: Line, last line, column, column behind the end; -1 for what is not known.
Place = tuple[int, int, int, int]

#: An exception, the number of its entries, its context (``None`` for what the caller handles), its
#: cause, and whether the context is hidden.
Row = tuple[BaseException, int, "BaseException | None", "BaseException | None", bool]


@dataclass(frozen=True, slots=True)
class Entry:
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


#: The entries of exceptions that were traced; a record holds the number of its own.
_KNOWN: Final[list[tuple[Entry, ...]]] = []


def number_of(entries: tuple[Entry, ...]) -> int:
    """Return the number by which ``call_handling`` finds ``entries``."""
    if entries not in _KNOWN:
        _KNOWN.append(entries)
    return _KNOWN.index(entries)


# When a record is delivered


def traceback_of(entries: Sequence[Entry]) -> TracebackType | None:
    """Return a traceback that shows ``entries``, the outermost first."""
    found = None
    for entry in reversed(entries):
        code = _standing_for(entry.code, entry.place)
        frame = FunctionType(code, entry.names)().gi_frame
        found = TracebackType(found, frame, _at(code), entry.place[0])
    return found


@cache
def _standing_for(code: CodeType, place: Place) -> CodeType:
    """Return the code of a generator with the names of ``code``, all of it at one place."""
    module = ast.parse("def generator(): yield")
    for node in ast.walk(module):
        if isinstance(node, (ast.stmt, ast.expr)):
            node.lineno, node.end_lineno, node.col_offset, node.end_col_offset = place
    compiled = compile(module, code.co_filename, "exec")
    generator = next(each for each in compiled.co_consts if isinstance(each, CodeType))
    return generator.replace(co_name=code.co_name, co_qualname=code.co_qualname)


def _at(code: CodeType) -> int:
    """Return the offset of an instruction that is at the place of all."""
    return next(each.offset for each in dis.get_instructions(code) if each.opname == "YIELD_VALUE")


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
    for error, entries, context, cause, hides_context in rows:
        error.__traceback__ = traceback_of(_KNOWN[entries])
        error.__context__ = around if context is None else context
        error.__cause__ = cause
        error.__suppress_context__ = hides_context
