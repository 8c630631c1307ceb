"""Lower canonical instructions to raw ones, lay them out and pack them.

The library's ``ConcreteBytecode`` would also pack them, at three times the cost of all the rest of
assembling.
"""

from __future__ import annotations

import dis
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import CodeType
from typing import Final

from bcmend.bytecode import behavior, line_table
from bcmend.bytecode.decode import BY_ARGUMENT, ENTERING, LOOKS_UP, cache_words
from bcmend.bytecode.exception_ranges import placed_index
from bcmend.bytecode.instructions import (
    AssembleError,
    Instruction,
    Label,
    Location,
    Shape,
    TryRange,
    UnknownOpcode,
    decoded_index,
)
from bcmend.bytecode.tables import Tables


@dataclass(slots=True)
class Unit:
    """One raw instruction being laid out: ``argument`` of a jump is only known at the end."""

    opcode: int
    argument: int
    target: int | None  # index of the canonical instruction that is jumped to
    index: int  # index of the canonical instruction it comes from
    location: Location
    cache: int  # code units of inline cache
    width: int  # code units, EXTENDED_ARG included


@cache
def _form(name: str) -> tuple[int, int]:
    """Return the opcode of a raw name, and how many units of inline cache follow it."""
    opcode = dis.opmap.get(name, 256)
    if opcode >= 256:  # opcodes from there on are for the compiler alone
        raise UnknownOpcode(f"this Python has no instruction {name}")
    return opcode, cache_words(name)


def _width(argument: int) -> int:
    return 1 if argument < 256 else (argument.bit_length() + 7) // 8


_CACHES: Final = tuple(bytes(2 * count) for count in range(32))
_EXTENDED_ARG: Final = dis.opmap["EXTENDED_ARG"]
#: Canonical instructions that stand for others, each with an argument if it has one of its own.
_RAW: Final[dict[str, tuple[tuple[str, int | None], ...]]] = {
    **({"CALL": (("PRECALL", None), ("CALL", None))} if behavior.CALL_HAS_PRECALL else {}),
    **({} if behavior.HAS_CLOSURE_OPCODE else {"LOAD_CLOSURE": (("LOAD_FAST", None),)}),
    **{
        canonical: ((name, argument),)
        for (name, argument), canonical in BY_ARGUMENT.items()
        if name in dis.opmap and canonical not in dis.opmap
    },
    **(ENTERING if LOOKS_UP in dis.opmap else {}),
}
#: What ``dis`` and Dynamo call the jump forward that pops a false condition.
RAW_JUMP_IF_FALSE: Final = (
    "POP_JUMP_FORWARD_IF_FALSE" if behavior.JUMPS_CARRY_DIRECTION else "POP_JUMP_IF_FALSE"
)
_INVERSE: Final = {
    "POP_JUMP_IF_TRUE": "POP_JUMP_IF_FALSE",
    "POP_JUMP_IF_FALSE": "POP_JUMP_IF_TRUE",
    "POP_JUMP_IF_NONE": "POP_JUMP_IF_NOT_NONE",
    "POP_JUMP_IF_NOT_NONE": "POP_JUMP_IF_NONE",
}


def lower(
    instructions: Sequence[Instruction], placed: Mapping[Label, int], tables: Tables
) -> list[Unit]:
    """Return the raw instructions that canonical ones are made of."""
    given: Location | None = None
    location = Location()
    units: list[Unit] = []
    for index, instruction in enumerate(instructions):
        op, own = instruction.op, instruction.location
        if own is not None and own is not given:
            given, location = own, line_table.checked(own)
        if instruction.target is not None:
            target = placed_index(instruction.target, placed)
            for name, goal in _jump_forms(op, index, target):
                opcode, words = _form(name)
                units.append(Unit(opcode, 0, goal, index, location, words, 1))
            continue
        if op == "LOAD_CONST" and behavior.HAS_SMALL_INTS and _is_small(instruction.arg):
            forms: Sequence[tuple[str, int | None]] = (("LOAD_SMALL_INT", instruction.arg),)
        else:
            raw = tables.raw(instruction)
            forms = _RAW.get(op) or ((op, raw),)
        for name, fixed in forms:
            argument = raw if fixed is None else fixed
            opcode, words = _form(name)
            width = 1 if argument < 256 else _width(argument)
            units.append(Unit(opcode, argument, None, index, location, words, width))
    return units


def _is_small(value: object) -> bool:
    """Return whether a constant is an integer that an opcode holds."""
    return type(value) is int and 0 <= value < 256


def _jump_forms(op: str, index: int, target: int) -> Iterator[tuple[str, int | None]]:
    """Yield the raw jumps that make up a canonical one, each with its target."""
    backward = target <= index
    if op == "JUMP":
        yield "JUMP_BACKWARD" if backward else "JUMP_FORWARD", target
    elif op == "JUMP_NO_INTERRUPT":
        yield "JUMP_BACKWARD_NO_INTERRUPT" if backward else "JUMP_FORWARD", target
    elif op in _INVERSE and behavior.JUMPS_CARRY_DIRECTION:
        yield op.replace("_IF_", "_BACKWARD_IF_" if backward else "_FORWARD_IF_"), target
    elif not backward:
        yield op, target
        if op in _INVERSE and behavior.JUMPS_ARE_MARKED:
            yield "NOT_TAKEN", None
    elif op in _INVERSE:
        yield _INVERSE[op], index + 1
        if behavior.JUMPS_ARE_MARKED:
            yield "NOT_TAKEN", None
        yield "JUMP_BACKWARD", target
    else:
        raise AssembleError(f"{op} cannot jump backward")


def lay_out(units: Sequence[Unit], count: int) -> list[int]:
    """Widen jumps until they reach their targets; return where each instruction starts."""
    while True:
        starts, position = [-1] * (count + 1), 0
        for unit in units:
            if starts[unit.index] < 0:
                starts[unit.index] = position
            position += unit.width + unit.cache
        starts[count] = position
        if not _resolve_jumps(units, starts):
            return starts


def _resolve_jumps(units: Sequence[Unit], starts: Sequence[int]) -> bool:
    """Set the arguments of jumps; return whether one of them became wider."""
    position, widened = 0, False
    for unit in units:
        position += unit.width + unit.cache
        if unit.target is None:
            continue
        unit.argument = abs(starts[unit.target] - position)
        needed = _width(unit.argument)
        if needed > unit.width:
            unit.width, widened = needed, True
    return widened


# --- packing -------------------------------------------------------------------------------------


def pack(
    shape: Shape,
    tables: Tables,
    units: Sequence[Unit],
    starts: Sequence[int],
    tries: Sequence[TryRange],
    depth: int,
) -> CodeType:
    """Return the code object of units whose widths and arguments are final."""
    return CodeType(
        shape.argcount,
        shape.posonlyargcount,
        shape.kwonlyargcount,
        len(tables.varnames),
        depth,
        shape.flags,
        raw_bytes(units),
        tuple(tables.constant_values),
        tuple(tables.names),
        tables.varnames,
        shape.filename,
        shape.name,
        shape.qualname,
        shape.first_lineno,
        line_table.encode(_runs(units), shape.first_lineno),
        exception_table(table_row(entry, starts) for entry in tries),
        shape.freevars,
        shape.cellvars,
    )


def raw_bytes(units: Iterable[Unit]) -> bytes:
    """Return the bytecode of units whose widths and arguments are final."""
    code = bytearray()
    for unit in units:
        for position in range(unit.width - 1, 0, -1):
            code.append(_EXTENDED_ARG)
            code.append(unit.argument >> 8 * position & 255)
        code.append(unit.opcode)
        code.append(unit.argument & 255)
        code += _CACHES[unit.cache]
    return bytes(code)


def _runs(units: Iterable[Unit]) -> Iterator[tuple[Location, int]]:
    """Yield locations and numbers of code units; neighbours with one location are joined."""
    location, count = Location(), 0
    for unit in units:
        if unit.location is not location and unit.location != location:
            yield location, count
            location, count = unit.location, 0
        count += unit.width + unit.cache
    yield location, count


def table_row(entry: TryRange, starts: Sequence[int]) -> tuple[int, int, int, int]:
    """Return the row of the exception table for a range of indices, in code units."""
    start, end = (starts[each] for each in entry.bounds)
    handler = starts[decoded_index(entry.handler)]
    return start, end - start, handler, entry.depth << 1 | entry.push_lasti


def exception_table(rows: Iterable[tuple[int, int, int, int]]) -> bytes:
    """Return an exception table of rows as ``decode.table_rows`` gives them."""
    table = bytearray()
    for numbers in rows:
        entry = bytearray(b"".join(map(_number, numbers)))
        entry[0] |= 128
        table += entry
    return bytes(table)


def _number(number: int) -> bytes:
    """Return six bits a byte, the highest first; bit 64 says that more follow."""
    digits = [number & 63]
    while number := number >> 6:
        digits.append(64 | number & 63)
    return bytes(reversed(digits))
