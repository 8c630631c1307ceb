"""Put instructions in front of a function without decoding the function.

Jumps are relative and none crosses the start of a function, so that the bytes behind it stay as
they are; only the exception table and the line table change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from types import CodeType
from typing import Final

from bcmend.bytecode import emit, line_table
from bcmend.bytecode.assemble import Item, place_labels
from bcmend.bytecode.decode import decode_shape, numbers_of, table_rows
from bcmend.bytecode.depth import check_depths
from bcmend.bytecode.exception_ranges import flatten
from bcmend.bytecode.instructions import AssembleError, Instruction, Location, TryRange
from bcmend.bytecode.layout import exception_table, lay_out, lower, raw_bytes, table_row
from bcmend.bytecode.opcodes import STARTS
from bcmend.bytecode.tables import Tables

#: The location of instructions that no line of the source stands for.
NOWHERE: Final = Location()
(_START,) = numbers_of(STARTS)
# Stands for the function behind the inserted instructions while these are verified.
_REST: Final = (*emit.load_const(None), *emit.return_value())


def insert_at_start(
    code: CodeType, items: Sequence[Item], tries: Sequence[TryRange] = ()
) -> CodeType:
    """Return ``code``, which is no generator's, with ``items`` run before its first statement.

    They name no local that ``code`` does not have, and go on to the function with no operand left.
    They take the location of the ``def``, but for those that say that they are ``NOWHERE``.

    Raises:
        AssembleError: the instructions make no sense, or would come inside a try range.
    """
    start = code.co_code[::2].index(_START) + 1
    instructions, placed = place_labels([*items, *_REST])
    flat_tries = flatten(tries, placed, len(instructions))
    depth = check_depths(instructions, placed, flat_tries)
    del instructions[-len(_REST) :]
    tables = Tables.of_code(decode_shape(code), code)
    units = lower(instructions, placed, tables)
    offsets = lay_out(units, len(instructions))
    count = offsets[-1]
    lengths = [after - before for before, after in pairwise(offsets)]
    places = [start + offset for offset in offsets]
    inserted = [table_row(entry, places) for entry in flat_tries]
    return code.replace(
        co_code=code.co_code[: 2 * start] + raw_bytes(units) + code.co_code[2 * start :],
        co_consts=tuple(tables.constant_values),
        co_names=tuple(tables.names),
        co_linetable=_line_table(code, start, instructions, lengths),
        co_exceptiontable=exception_table([*inserted, *_moved(code, start, count)]),
        co_stacksize=max(code.co_stacksize, depth),
    )


def _line_table(
    code: CodeType, start: int, instructions: Sequence[Instruction], lengths: Sequence[int]
) -> bytes:
    position = next(islice(code.co_positions(), start - 1, None))
    location = line_table.checked(Location(*position))
    before, uncovered, after = line_table.divided(code.co_linetable, start)
    line = code.co_firstlineno if location.lineno is None else location.lineno
    runs = [
        (NOWHERE if instruction.location == NOWHERE else location, length)
        for instruction, length in zip(instructions, lengths, strict=True)
    ]
    return before + line_table.encode([*runs, (location, uncovered)], line) + after


def _moved(code: CodeType, start: int, count: int) -> Iterator[tuple[int, int, int, int]]:
    for first, length, handler, depth_and_lasti in table_rows(code.co_exceptiontable):
        if min(first, handler) < start:
            raise AssembleError(f"{code.co_qualname} begins inside a try range")
        yield first + count, length, handler + count, depth_and_lasti
