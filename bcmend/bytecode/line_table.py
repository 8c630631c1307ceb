"""Write and divide the line table of a code object.

An entry covers one to eight code units, and gives its line as the difference from the line before
(CPython, ``Objects/locations.md``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from bcmend.bytecode.instructions import AssembleError, Location

_ONE_LINE: Final = 10  # plus the number of lines further, 0 to 2
_NO_COLUMNS: Final = 13
_LONG: Final = 14
_NO_LOCATION: Final = 15
_UNITS_OF_AN_ENTRY: Final = 8


def checked(location: Location) -> Location:
    """Return ``location`` without columns that are known in part, and the line of their end."""
    line, end_line = location.lineno, location.end_lineno
    column, end_column = location.col_offset, location.end_col_offset
    if line is None:
        return Location()
    if column is None or end_column is None or end_line is None:
        return Location(line, line)
    if line < 0 or column < 0 or (end_line, end_column) < (line, 0):
        raise AssembleError(f"{location} is out of range")
    if line == end_line and end_column < column:
        raise AssembleError(f"{location} ends before it starts")
    return location


def encode(runs: Iterable[tuple[Location, int]], previous_line: int) -> bytes:
    """Return the table of runs of code units: a checked location, and how many units have it.

    At the start of a table, ``previous_line`` is that of the ``def``.
    """
    table = bytearray()
    for location, units in runs:
        while units > 0:
            _append_entry(table, location, min(units, _UNITS_OF_AN_ENTRY), previous_line)
            if location.lineno is not None:
                previous_line = location.lineno
            units -= _UNITS_OF_AN_ENTRY
    return bytes(table)


def _append_entry(table: bytearray, location: Location, units: int, previous_line: int) -> None:
    line, column, end_column = location.lineno, location.col_offset, location.end_col_offset
    if line is None:
        table.append(_header(_NO_LOCATION, units))
        return
    delta = line - previous_line
    if column is None or end_column is None or location.end_lineno is None:
        table.append(_header(_NO_COLUMNS, units))
        _append_signed(table, delta)
        return
    lines = location.end_lineno - line
    if lines == 0 == delta and column < 80 and end_column - column < 16:
        table.append(_header(column >> 3, units))
        table.append((column & 7) << 4 | end_column - column)
    elif lines == 0 and 0 <= delta <= 2 and column < 128 and end_column < 128:
        table.append(_header(_ONE_LINE + delta, units))
        table.append(column)
        table.append(end_column)
    else:
        table.append(_header(_LONG, units))
        _append_signed(table, delta)
        for number in (lines, column + 1, end_column + 1):
            _append_number(table, number)


def _header(form: int, units: int) -> int:
    return 128 | form << 3 | units - 1


def _append_number(table: bytearray, number: int) -> None:
    """Append six bits a byte, the lowest first; bit 64 says that more follow."""
    while number >= 64:
        table.append(64 | number & 63)
        number >>= 6
    table.append(number)


def _append_signed(table: bytearray, number: int) -> None:
    _append_number(table, number << 1 if number >= 0 else -number << 1 | 1)


def divided(table: bytes, units: int) -> tuple[bytes, int, bytes]:
    """Divide a table after ``units`` code units.

    Returns the entries before; how many more units the last of them had before it was cut, whose
    location has still to be given; the entries after.
    """
    for start, end, covered in _entries(table):
        if covered >= units:
            header = bytes([table[start] & ~7 | units - 1])
            before = table[:start] + header + table[start + 1 : end]
            return before, covered - units, table[end:]
        units -= covered
    return table, 0, b""


def _entries(table: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield where each entry starts and ends, and how many units it covers."""
    start = 0
    while start < len(table):
        end = start + 1
        while end < len(table) and not table[end] & 128:
            end += 1
        yield start, end, (table[start] & 7) + 1
        start = end
