"""Code object to canonical instructions.

Reads a code object of the running CPython and produces a ``FunctionCode``: instructions by
canonical name, with arguments as the ``bytecode`` library spells them and jump targets as indices.
Canonical means: no CACHE, EXTENDED_ARG or PRECALL, no direction in the names of jumps, fused
instructions taken apart, a load of a cell itself always LOAD_CLOSURE.

The bytes are read here rather than through ``bytecode.Bytecode``: that view takes three times as
long, forgets the stack depths of the exception table, and does not know locals that share their
slot with a cell (inlined comprehensions). The enumerations of its arguments are used.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final, NamedTuple

from bytecode import BinaryOp, Bytecode, Compare, ConcreteInstr, Instr
from bytecode.instr import FormatValue, Intrinsic1Op, Intrinsic2Op

from bcmend.codeobj import behavior
from bcmend.codeobj.errors import DecodeError, UnknownOpcode
from bcmend.codeobj.opcodes import ROWS

__all__ = [
    "DecodeError",
    "FunctionCode",
    "Instruction",
    "Label",
    "Location",
    "Shape",
    "TryRange",
    "UnknownOpcode",
    "decode",
]


@dataclass(frozen=True, slots=True)
class Location:
    """Where in the source an instruction comes from; all ``None`` for one that comes from nowhere.

    Lines count from 1, columns are byte offsets and count from 0.
    """

    lineno: int | None = None
    end_lineno: int | None = None
    col_offset: int | None = None
    end_col_offset: int | None = None


class Label:
    """A place between instructions, itself its only identity; the name is for printing."""

    __slots__ = ("name",)

    def __init__(self, name: str = "") -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<Label {self.name or hex(id(self))}>"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One canonical instruction.

    Attributes:
        op: canonical name; ``opcodes.row(op)`` has the facts.
        arg: the value of a constant, the name of a variable, ``(bool, name)`` for LOAD_GLOBAL and
            for LOAD_ATTR where it can load a method, an enumeration member for operators, an int.
        target: where a jump goes: an index into ``FunctionCode.instructions`` in decoded code, a
            ``Label`` in code being built.
        offset: byte offset in the code it was decoded from, -1 if there is none.
        location: source position; ``None`` takes the one of the instruction before.
    """

    op: str
    arg: Any = None
    target: int | Label | None = None
    offset: int = -1
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class TryRange:
    """Instructions whose exceptions go to a handler.

    ``start``, ``end`` (exclusive) and ``handler`` are indices in decoded code, labels in code being
    built. The handler starts with the lowest ``depth`` operands, then the offset of the failing
    instruction if ``push_lasti``, then the exception.
    """

    start: int | Label
    end: int | Label
    handler: int | Label
    depth: int
    push_lasti: bool


@dataclass(frozen=True, slots=True)
class Shape:
    """Everything of a code object that is not its instructions.

    ``argcount`` includes positional-only arguments. ``argnames`` are all the arguments in the order
    of ``co_varnames``, ``*args`` and ``**kwargs`` included; ``varnames`` starts with them, and
    assembling adds the locals that only instructions name.
    """

    name: str
    qualname: str
    filename: str
    first_lineno: int
    argcount: int
    posonlyargcount: int
    kwonlyargcount: int
    flags: int
    argnames: tuple[str, ...]
    varnames: tuple[str, ...]
    cellvars: tuple[str, ...] = ()
    freevars: tuple[str, ...] = ()
    docstring: str | None = None


@dataclass(frozen=True, slots=True)
class FunctionCode:
    """A code object in canonical form."""

    shape: Shape
    instructions: tuple[Instruction, ...]
    tries: tuple[TryRange, ...]


class Opcode(NamedTuple):
    """How one raw opcode is read."""

    name: str  # canonical
    argument: str  # Row.argument, or "pair" for a fused instruction
    words: int  # code units, inline caches included
    backward: bool
    parts: tuple[str, ...]  # what a fused instruction is made of


_CANONICAL_NAMES: Final = {
    "JUMP_FORWARD": "JUMP",
    "JUMP_BACKWARD": "JUMP",
    "JUMP_BACKWARD_NO_INTERRUPT": "JUMP_NO_INTERRUPT",
}
_FUSED: Final = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
}
_EXTENDED_ARG: Final = dis.opmap["EXTENDED_ARG"]
_PRECALL: Final = dis.opmap.get("PRECALL", -1)


def cache_words(raw_name: str) -> int:
    """Return how many code units of inline cache follow the opcode ``raw_name``."""
    try:
        instruction = ConcreteInstr(raw_name)
    except ValueError:  # it wants an argument
        instruction = ConcreteInstr(raw_name, 0)
    return instruction.use_cache_opcodes()


def _read_opcodes() -> dict[int, Opcode]:
    known = {}
    for raw_name, opcode in dis.opmap.items():
        name = _CANONICAL_NAMES.get(raw_name, raw_name)
        name = name.replace("_FORWARD_IF_", "_IF_").replace("_BACKWARD_IF_", "_IF_")
        parts = _FUSED.get(raw_name, ())
        if opcode < 256 and (name in ROWS or parts):
            argument = "pair" if parts else ROWS[name].argument
            words = 1 + cache_words(raw_name)
            known[opcode] = Opcode(name, argument, words, "BACKWARD" in raw_name, parts)
    return known


_OPCODES: Final = _read_opcodes()
_PRECALL_WORDS: Final = 1 + cache_words("PRECALL") if behavior.CALL_HAS_PRECALL else 0


def _raw_compare(operator: Compare) -> int:
    """Return the argument of COMPARE_OP for ``operator``, as the library encodes it."""
    operands = [Instr("LOAD_CONST", 0), Instr("LOAD_CONST", 1)]
    code = Bytecode([*operands, Instr("COMPARE_OP", operator), Instr("RETURN_VALUE")])
    instruction = code.to_concrete_bytecode()[2]
    assert isinstance(instruction, ConcreteInstr)
    return instruction.arg


#: Raw argument to enumeration member, by ``Row.argument``.
ENUMERATIONS: Final[dict[str, dict[int, Any]]] = {
    "compare": {_raw_compare(member): member for member in Compare},
    "binary": {member.value: member for member in BinaryOp},
    "intrinsic_1": {member.value: member for member in Intrinsic1Op},
    "intrinsic_2": {member.value: member for member in Intrinsic2Op},
    "convert": {member.value: member for member in FormatValue},
}


def decode(code: CodeType) -> FunctionCode:
    """Return the canonical form of ``code``.

    Raises:
        DecodeError: ``code`` has no canonical form; ``UnknownOpcode`` where an opcode is the cause.
    """
    if not set(code.co_cellvars).isdisjoint(code.co_freevars):
        # An inlined comprehension can make a cell that is named as a free variable of its function.
        raise DecodeError(f"{code.co_qualname}: one name is both a cell and a free variable")
    try:
        raw_instructions, index_at = _decode_instructions(code)
        instructions = tuple(_with_targets(raw_instructions, index_at))
        tries = tuple(_decode_tries(code, index_at))
    except (IndexError, KeyError) as error:
        message = "an argument or a jump stands for nothing that there is"
        raise DecodeError(f"{code.co_qualname}: {message}") from error
    return FunctionCode(decode_shape(code), instructions, tries)


def decode_shape(code: CodeType) -> Shape:
    """Return everything of ``code`` that is not its instructions."""
    arguments = code.co_argcount + code.co_kwonlyargcount
    arguments += bool(code.co_flags & inspect.CO_VARARGS)
    arguments += bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return Shape(
        name=code.co_name,
        qualname=code.co_qualname,
        filename=code.co_filename,
        first_lineno=code.co_firstlineno,
        argcount=code.co_argcount,
        posonlyargcount=code.co_posonlyargcount,
        kwonlyargcount=code.co_kwonlyargcount,
        flags=code.co_flags,
        argnames=code.co_varnames[:arguments],
        varnames=code.co_varnames,
        cellvars=code.co_cellvars,
        freevars=code.co_freevars,
        docstring=_docstring(code),
    )


def _docstring(code: CodeType) -> str | None:
    """Return what a function of ``code`` has for a docstring: its first constant, if a string."""
    first = code.co_consts[0] if code.co_consts else None
    return first if isinstance(first, str) else None


def slot_names(
    varnames: tuple[str, ...], cellvars: tuple[str, ...], freevars: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the name of each slot of a frame: locals, cells that are no locals, free variables."""
    return (*varnames, *(name for name in cellvars if name not in varnames), *freevars)


def argument_readers(code: CodeType) -> dict[str, Callable[[int], Any]]:
    """Return, by ``Row.argument``, the function from raw to canonical argument."""
    names = code.co_names
    slots = slot_names(code.co_varnames, code.co_cellvars, code.co_freevars)
    readers: dict[str, Callable[[int], Any]] = {
        "none": lambda raw: None,
        "int": int,
        "const": code.co_consts.__getitem__,
        "local": slots.__getitem__,
        "cell": slots.__getitem__,
        "name": names.__getitem__,
        "flagged_name": lambda raw: (bool(raw & 1), names[raw >> 1]),
        "super": lambda raw: (bool(raw & 1), bool(raw & 2), names[raw >> 2]),
    }
    readers.update({kind: table.__getitem__ for kind, table in ENUMERATIONS.items()})
    return readers


def _decode_instructions(code: CodeType) -> tuple[list[Instruction], list[int]]:
    """Decode with jump targets as code units.

    Returns the instructions, and for each code unit the index of the instruction that it belongs
    to, or, for an inline cache, that follows it.
    """
    positions = list(code.co_positions())
    locations: dict[tuple[int | None, ...], Location] = {}
    readers = argument_readers(code)
    closure_slots = _closure_slots(code)
    instructions: list[Instruction] = []
    index_at: list[int] = []
    for unit, known, raw in raw_steps(code):
        # What lies before the opcode itself belongs to it: wider arguments, PRECALL.
        index = len(instructions)
        while len(index_at) <= unit:
            index_at.append(index)
        position = positions[unit]
        location = locations.get(position)
        if location is None:
            location = locations[position] = Location(*position)
        offset = 2 * unit
        if known.argument == "jump":
            target = jump_target(unit, known, raw)
            instructions.append(Instruction(known.name, None, target, offset, location))
        elif known.argument == "pair":
            instructions.extend(_split(known.parts, raw, readers["local"], offset, location))
        elif known.name == "LOAD_FAST" and raw in closure_slots:
            name = readers["cell"](raw)
            instructions.append(Instruction("LOAD_CLOSURE", name, None, offset, location))
        else:
            arg = readers[known.argument](raw)
            instructions.append(Instruction(known.name, arg, None, offset, location))
    index_at.extend([len(instructions)] * (len(positions) + 1 - len(index_at)))
    return instructions, index_at


def raw_steps(code: CodeType) -> Iterator[tuple[int, Opcode, int]]:
    """Yield the code unit of each opcode, how to read it, and its argument in full width.

    Raises:
        UnknownOpcode: one of them has no facts.
    """
    raw_code = code.co_code
    unit, units, extended = 0, len(raw_code) // 2, 0
    while unit < units:
        opcode, raw = raw_code[2 * unit], raw_code[2 * unit + 1] | extended
        known = _OPCODES.get(opcode)
        if known is not None:
            yield unit, known, raw
            unit += known.words
            extended = 0
        elif opcode == _EXTENDED_ARG:
            extended = raw << 8
            unit += 1
        elif opcode == _PRECALL:
            unit += _PRECALL_WORDS
            extended = 0
        else:
            raise UnknownOpcode(f"no facts are known about the opcode {dis.opname[opcode]}")


def jump_target(unit: int, known: Opcode, raw: int) -> int:
    """Return the code unit that the jump at ``unit`` goes to."""
    after = unit + known.words
    return after - raw if known.backward else after + raw


def _closure_slots(code: CodeType) -> range | frozenset[int]:
    """Return the slots from which LOAD_FAST takes a cell itself, where that is how it is done."""
    if behavior.HAS_CLOSURE_OPCODE or not (code.co_cellvars or code.co_freevars):
        return range(0)
    slots = slot_names(code.co_varnames, code.co_cellvars, code.co_freevars)
    shared = (code.co_varnames.index(name) for name in code.co_cellvars if name in code.co_varnames)
    return frozenset((*shared, *range(len(code.co_varnames), len(slots))))


def _split(
    parts: tuple[str, ...],
    raw: int,
    read_local: Callable[[int], Any],
    offset: int,
    location: Location,
) -> Iterator[Instruction]:
    """Take a fused pair of local loads and stores apart; both have four bits of argument."""
    yield Instruction(parts[0], read_local(raw >> 4), None, offset, location)
    yield Instruction(parts[1], read_local(raw & 15), None, offset, location)


def _with_targets(instructions: list[Instruction], index_at: list[int]) -> Iterator[Instruction]:
    """Turn targets from code units into indices."""
    for instruction in instructions:
        if isinstance(instruction.target, int):
            target = index_at[instruction.target]
            if instruction.target < 0 or target == len(instructions):
                raise IndexError(instruction.target)
            yield Instruction(
                instruction.op, None, target, instruction.offset, instruction.location
            )
        else:
            yield instruction


def _decode_tries(code: CodeType, index_at: list[int]) -> Iterator[TryRange]:
    """Read the exception table (CPython's exception_handling_notes.txt)."""
    for start, length, handler, depth_and_lasti in table_rows(code.co_exceptiontable):
        yield TryRange(
            index_at[start],
            index_at[start + length],
            index_at[handler],
            depth_and_lasti >> 1,
            bool(depth_and_lasti & 1),
        )


def table_rows(table: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield the rows of an exception table: start, length, handler, twice the depth plus lasti."""
    numbers = _variable_length_numbers(table)
    for start in numbers:
        yield start, next(numbers), next(numbers), next(numbers)


def _variable_length_numbers(table: bytes) -> Iterator[int]:
    """Yield the numbers of an exception table: six bits a byte, bit 64 says that more follow."""
    value = 0
    for byte in table:
        value = value << 6 | byte & 63
        if not byte & 64:
            yield value
            value = 0
