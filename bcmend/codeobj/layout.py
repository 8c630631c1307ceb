"""Canonical instructions to raw ones, laid out and packed.

Reads instructions with placed labels, flat try ranges and tables; chooses the raw form, direction
and width of every instruction, adds inline caches, and has ``bytecode.ConcreteBytecode`` pack the
bytes, the line table and the exception table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import CodeType
from typing import Final

from bytecode import CompilerFlags, ConcreteBytecode, ConcreteInstr
from bytecode.concrete import ExceptionTableEntry
from bytecode.instr import UNSET, InstrLocation

from bcmend.codeobj import behavior
from bcmend.codeobj.decode import (
    Instruction,
    Label,
    Location,
    Shape,
    TryRange,
    cache_words,
)
from bcmend.codeobj.errors import AssembleError
from bcmend.codeobj.exception_ranges import end_of, placed_index, start_of
from bcmend.codeobj.tables import Tables


@dataclass(slots=True)
class Unit:
    """One raw instruction being laid out: ``argument`` of a jump is only known at the end."""

    name: str
    argument: int | None
    target: int | None  # index of the canonical instruction that is jumped to
    index: int  # index of the canonical instruction it comes from
    location: InstrLocation
    width: int = 1  # code units, EXTENDED_ARG included
    cache: int = 0

    def __post_init__(self) -> None:
        self.cache = _cache_words(self.name)
        self.width = _width(self.argument or 0)


_cache_words: Final = cache(cache_words)


def _width(argument: int) -> int:
    return 1 if argument < 256 else (argument.bit_length() + 7) // 8


_INVERSE: Final = {
    "POP_JUMP_IF_TRUE": "POP_JUMP_IF_FALSE",
    "POP_JUMP_IF_FALSE": "POP_JUMP_IF_TRUE",
    "POP_JUMP_IF_NONE": "POP_JUMP_IF_NOT_NONE",
    "POP_JUMP_IF_NOT_NONE": "POP_JUMP_IF_NONE",
}


def lower(
    instructions: Sequence[Instruction], placed: Mapping[Label, int], tables: Tables
) -> Iterator[Unit]:
    """Turn canonical instructions into raw ones."""
    location = InstrLocation(None, None, None, None)
    converted: dict[Location, InstrLocation] = {}
    for index, instruction in enumerate(instructions):
        if instruction.location is not None:
            location = converted.setdefault(instruction.location, _location(instruction.location))
        if instruction.target is not None:
            target = placed_index(instruction.target, placed)
            yield from _lower_jump(instruction.op, index, target, location)
            continue
        raw = tables.raw(instruction)
        if instruction.op == "CALL" and behavior.CALL_HAS_PRECALL:
            yield Unit("PRECALL", raw, None, index, location)
        name = instruction.op
        if name == "LOAD_CLOSURE" and not behavior.HAS_CLOSURE_OPCODE:
            name = "LOAD_FAST"
        yield Unit(name, raw, None, index, location)


def _lower_jump(op: str, index: int, target: int, location: InstrLocation) -> Iterator[Unit]:
    backward = target <= index
    if op == "JUMP":
        yield Unit("JUMP_BACKWARD" if backward else "JUMP_FORWARD", 0, target, index, location)
    elif op == "JUMP_NO_INTERRUPT":
        name = "JUMP_BACKWARD_NO_INTERRUPT" if backward else "JUMP_FORWARD"
        yield Unit(name, 0, target, index, location)
    elif op in _INVERSE and behavior.JUMPS_CARRY_DIRECTION:
        direction = "_BACKWARD_IF_" if backward else "_FORWARD_IF_"
        yield Unit(op.replace("_IF_", direction), 0, target, index, location)
    elif not backward:
        yield Unit(op, 0, target, index, location)
    elif op in _INVERSE:
        yield Unit(_INVERSE[op], 0, index + 1, index, location)
        yield Unit("JUMP_BACKWARD", 0, target, index, location)
    else:
        raise AssembleError(f"{op} cannot jump backward")


def _location(location: Location) -> InstrLocation:
    line, end_line = location.lineno, location.end_lineno
    column, end_column = location.col_offset, location.end_col_offset
    if line is None:
        return InstrLocation(None, None, None, None)
    if column is None or end_column is None or end_line is None:
        # The line table has no form for columns that are known in part.
        return InstrLocation(line, line, None, None)
    try:
        return InstrLocation(line, end_line, column, end_column)
    except ValueError as error:
        raise AssembleError(f"{location}: {error}") from error


def lay_out(units: Sequence[Unit], count: int) -> list[int]:
    """Widen jumps until all targets can be reached; return where each instruction starts."""
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
    slots = list(tables.locals)
    local_count = _local_count(shape, tables)
    packed = ConcreteBytecode(
        _concrete(units),
        consts=tuple(tables.constant_values),
        names=tuple(tables.names),
        varnames=sorted(slots, key=tables.locals.__getitem__)[:local_count],
        exception_table=[
            ExceptionTableEntry(
                starts[start_of(entry)],
                starts[end_of(entry)] - 1,
                starts[entry.handler] if isinstance(entry.handler, int) else -1,
                entry.depth,
                entry.push_lasti,
            )
            for entry in tries
        ],
    )
    packed.name, packed.qualname, packed.filename = shape.name, shape.qualname, shape.filename
    packed.first_lineno, packed.flags = shape.first_lineno, CompilerFlags(shape.flags)
    packed.argcount, packed.kwonlyargcount = shape.argcount, shape.kwonlyargcount
    packed.posonlyargcount = shape.posonlyargcount
    packed.cellvars, packed.freevars = list(shape.cellvars), list(shape.freevars)
    return packed.to_code(stacksize=depth, compute_exception_stack_depths=False)


def _local_count(shape: Shape, tables: Tables) -> int:
    separate = {*shape.cellvars} - {*shape.varnames}
    return len(tables.locals) - len(separate) - len({*shape.freevars} - {*shape.varnames})


def _concrete(units: Iterable[Unit]) -> Iterator[ConcreteInstr]:
    for unit in units:
        yield ConcreteInstr(
            unit.name,
            UNSET if unit.argument is None else unit.argument,
            location=unit.location,
            extended_args=unit.width - 1,
        )
        for _ in range(unit.cache):
            yield ConcreteInstr("CACHE", 0, location=unit.location)
