"""Decode code objects to canonical instructions.

Arguments are as the ``bytecode`` library has them. The bytes are not read by ``bytecode.Bytecode``,
which takes three times as long, forgets the stack depths of the exception table, and does not know
locals that share their slot with a cell (inlined comprehensions).
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from types import CodeType
from typing import Any, Final, NamedTuple

from bytecode import BinaryOp, Bytecode, Compare, ConcreteInstr, Instr
from bytecode.instr import CommonConstant, FormatValue, Intrinsic1Op, Intrinsic2Op

from bcmend.bytecode import behavior
from bcmend.bytecode.instructions import (
    DecodeError,
    FunctionCode,
    Instruction,
    Label,
    Location,
    Shape,
    TryRange,
    UnknownOpcode,
    argument_count,
    decoded_index,
    retargeted,
)
from bcmend.bytecode.opcodes import KEYWORD_NAMES, ROWS, row


class Opcode(NamedTuple):
    """How one raw opcode is read."""

    name: str  # canonical
    argument: str  # Row.argument, or "pair" for a fused instruction
    words: int  # code units, inline caches included
    backward: bool = False
    parts: tuple[str, ...] = ()  # what a fused instruction is made of
    tests: bool = False  # whether it is a conditional jump, behind which there may be a mark


_CANONICAL_NAMES: Final = {
    "JUMP_FORWARD": "JUMP",
    "JUMP_BACKWARD": "JUMP",
    "JUMP_BACKWARD_NO_INTERRUPT": "JUMP_NO_INTERRUPT",
    "LOAD_FAST_BORROW": "LOAD_FAST",
    "LOAD_SMALL_INT": "LOAD_CONST",
}
#: Opcodes that stand for others with some of their arguments.
BY_ARGUMENT: Final = {
    ("BINARY_OP", 26): "BINARY_SUBSCR",
    ("LOAD_COMMON_CONSTANT", 0): "LOAD_ASSERTION_ERROR",
    # The last of several by which a block is entered.
    ("LOAD_SPECIAL", 0): "BEFORE_WITH",
    ("LOAD_SPECIAL", 2): "BEFORE_ASYNC_WITH",
}
#: What a block of ``with`` is entered by where there is no opcode for it, with the arguments.
ENTERING: Final = {
    name: (
        ("COPY", 1),
        ("LOAD_SPECIAL", leaves),
        ("SWAP", 2),
        ("SWAP", 3),
        ("LOAD_SPECIAL", leaves - 1),
        ("CALL", 0),
    )
    for name, leaves in (("BEFORE_WITH", 1), ("BEFORE_ASYNC_WITH", 3))
}
#: Whatever the argument of these is, they may stand for others.
_DECIDED_BY_ARGUMENT: Final = frozenset(name for name, _ in BY_ARGUMENT)
#: How an argument is read that is not as the row of the canonical opcode has it.
_ARGUMENTS: Final = {"LOAD_SMALL_INT": "int"}
_COPY: Final = dis.opmap["COPY"]
#: The opcode by which a block of ``with`` is entered up to Python 3.13, and that of later ones.
ENTERS_A_BLOCK: Final = "BEFORE_WITH"
LOOKS_UP: Final = "LOAD_SPECIAL"
_LOOKUP: Final = dis.opmap.get(LOOKS_UP, -1)
_MARK: Final = dis.opmap.get("NOT_TAKEN", -1)
_FUSED: Final = {
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": ("LOAD_FAST", "LOAD_FAST"),
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
}
_EXTENDED_ARG: Final = dis.opmap["EXTENDED_ARG"]
#: Opcodes that only give the next instruction a part of its argument.
PREFIXES: Final = frozenset({_EXTENDED_ARG})
_BEFORE_CALL: Final = "PRECALL"
#: What ``dis`` has right before a call and as a part of it.
BEFORE_CALLS: Final = KEYWORD_NAMES | {_BEFORE_CALL}
_PRECALL: Final = dis.opmap.get(_BEFORE_CALL, -1)


def cache_words(raw_name: str) -> int:
    """Return how many code units of inline cache follow the opcode ``raw_name``."""
    try:
        instruction = ConcreteInstr(raw_name)
    except ValueError:  # it wants an argument
        instruction = ConcreteInstr(raw_name, 0)
    return instruction.use_cache_opcodes()


def canonical_name(raw_name: str, raw_argument: int | None = None) -> str:
    """Return the canonical name of what ``dis`` calls ``raw_name``; of a fused one its own."""
    if raw_name == _BEFORE_CALL:
        return "CALL"
    name = _CANONICAL_NAMES.get(raw_name, raw_name)
    if raw_argument is not None and name in _DECIDED_BY_ARGUMENT:
        name = BY_ARGUMENT.get((name, raw_argument), name)
    return name.replace("_FORWARD_IF_", "_IF_").replace("_BACKWARD_IF_", "_IF_")


def operation(instruction: Any) -> str:
    """Return the canonical name of an instruction as ``dis`` or Dynamo has it."""
    return canonical_name(instruction.opname, instruction.arg)


def _read_opcodes() -> dict[int, Opcode]:
    known = {}
    for raw_name, opcode in dis.opmap.items():
        name = canonical_name(raw_name)
        parts = _FUSED.get(raw_name, ())
        if opcode < 256 and raw_name != _BEFORE_CALL and (name in ROWS or parts):
            argument = "pair" if parts else _ARGUMENTS.get(raw_name) or ROWS[name].argument
            words = 1 + cache_words(raw_name)
            tests = name.startswith("POP_JUMP_IF_")
            known[opcode] = Opcode(name, argument, words, "BACKWARD" in raw_name, parts, tests)
    return known


_OPCODES: Final = _read_opcodes()
#: Opcodes that stand for others with some of their arguments, and what is entered by several.
_OF_ARGUMENT: Final = {
    (dis.opmap[raw_name], argument): _OPCODES[dis.opmap[raw_name]]._replace(
        name=name, argument=row(name).argument
    )
    for (raw_name, argument), name in BY_ARGUMENT.items()
    if dis.opmap.get(raw_name) in _OPCODES and name not in dis.opmap
}
_WITH_ARGUMENT: Final = frozenset(opcode for opcode, _ in _OF_ARGUMENT)


def _read_entering() -> dict[bytes, Opcode]:
    """Return the opcodes by which a block of ``with`` is entered, by the bytes they stand for."""
    found = {}
    for name, parts in ENTERING.items() if _LOOKUP >= 0 else ():
        units = [
            bytes([dis.opmap[part], argument]) + bytes(2 * cache_words(part))
            for part, argument in parts
        ]
        raw = b"".join(units)
        found[raw] = Opcode(name, row(name).argument, len(raw) // 2)
    return found


_ENTERED: Final = _read_entering()
_ENTERING_LENGTH: Final = max(map(len, _ENTERED), default=0)
_PRECALL_WORDS: Final = 1 + cache_words(_BEFORE_CALL) if behavior.CALL_HAS_PRECALL else 0


def numbers_of(names: frozenset[str]) -> frozenset[int]:
    """Return the numbers that this Python may have for opcodes, and for what is fused with others.

    Nobody asks on a Python that is not known; on others it has at least one of them.
    """
    found = frozenset(
        number
        for number, each in _OPCODES.items()
        if each.name in names or not names.isdisjoint(each.parts)
    )
    found |= {_LOOKUP for each in _ENTERED.values() if each.name in names}
    assert found or units_of(names) or not behavior.IS_KNOWN, (
        f"this Python has no opcode {' or '.join(sorted(names))}"
    )
    return found


def units_of(names: frozenset[str]) -> frozenset[bytes]:
    """Return the code units that this Python has for opcodes with some arguments of others."""
    return frozenset(bytes(unit) for unit, each in _OF_ARGUMENT.items() if each.name in names)


def _raw_compare(operator: Compare) -> int:
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
    "common": {member.value: member for member in CommonConstant},
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
        instructions = retargeted(raw_instructions, partial(_target, index_at))
        tries = tuple(_decode_tries(code, index_at))
    except (IndexError, KeyError) as error:
        message = "an argument or a jump stands for nothing that there is"
        raise DecodeError(f"{code.co_qualname}: {message}") from error
    return FunctionCode(decode_shape(code), instructions, tries)


def decode_shape(code: CodeType) -> Shape:
    """Return everything of ``code`` that is not its instructions."""
    arguments = argument_count(code.co_argcount, code.co_kwonlyargcount, code.co_flags)
    first = code.co_consts[0] if code.co_consts else None
    has_docstring = code.co_flags & behavior.DOCSTRING_FLAG == behavior.DOCSTRING_FLAG
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
        docstring=first if has_docstring and isinstance(first, str) else None,
    )


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
    """Return the instructions, with code units as targets of jumps, and the index at each unit.

    An inline cache has the index of the instruction that follows it.
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
            for part, slot in zip(known.parts, (raw >> 4, raw & 15), strict=True):
                name = readers["local"](slot)
                instructions.append(Instruction(part, name, None, offset, location))
        elif known.name == "LOAD_FAST" and raw in closure_slots:
            name = readers["cell"](raw)
            instructions.append(Instruction("LOAD_CLOSURE", name, None, offset, location))
        else:
            arg = readers[known.argument](raw)
            instructions.append(Instruction(known.name, arg, None, offset, location))
    index_at.extend([len(instructions)] * (len(positions) + 1 - len(index_at)))
    return instructions, index_at


def raw_steps(code: CodeType) -> Iterator[tuple[int, Opcode, int]]:
    """Yield the code unit of each opcode, how to read it, and its argument in full width."""
    raw_code = code.co_code
    unit, units, extended, tested = 0, len(raw_code) // 2, 0, False
    while unit < units:
        opcode, raw = raw_code[2 * unit], raw_code[2 * unit + 1] | extended
        known = _OPCODES.get(opcode)
        if opcode == _MARK and tested:
            unit += 1
        elif known is not None:
            if opcode in _WITH_ARGUMENT:
                known = _OF_ARGUMENT.get((opcode, raw), known)
            elif opcode == _COPY and _LOOKUP >= 0:
                known = _ENTERED.get(raw_code[2 * unit : 2 * unit + _ENTERING_LENGTH], known)
            yield unit, known, raw
            unit += known.words
            extended, tested = 0, known.tests
            continue
        elif opcode == _EXTENDED_ARG:
            extended = raw << 8
            unit += 1
        elif opcode == _PRECALL:
            unit += _PRECALL_WORDS
            extended = 0
        else:
            raise UnknownOpcode(f"no facts are known about the opcode {dis.opname[opcode]}")
        tested = False


def unfused(code: CodeType) -> Iterator[dis.Instruction]:
    """Yield what ``dis`` gives, with canonical names, and each of two that are fused."""
    for each in dis.get_instructions(code):
        names = _FUSED.get(each.opname)
        if names is None:
            is_half = each.opname == _BEFORE_CALL
            yield each if is_half else each._replace(opname=operation(each))
        else:
            for name, variable in zip(names, each.argval, strict=True):
                yield each._replace(opname=name, argval=variable)


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


def _target(index_at: list[int], unit: int | Label) -> int:
    """Return the index of the instruction at a code unit that is jumped to."""
    unit = decoded_index(unit)
    if unit < 0 or index_at[unit] == index_at[-1]:
        raise IndexError(unit)
    return index_at[unit]


def _decode_tries(code: CodeType, index_at: list[int]) -> Iterator[TryRange]:
    """Yield the ranges of the exception table (CPython's exception_handling_notes.txt).

    A mark behind a jump, which is left out, may have divided one.
    """
    before: TryRange | None = None
    for start, length, handler, depth_and_lasti in table_rows(code.co_exceptiontable):
        first, end, place = (index_at[unit] for unit in (start, start + length, handler))
        entry = TryRange(first, end, place, depth_and_lasti >> 1, bool(depth_and_lasti & 1))
        if before is not None and replace(before, start=before.end, end=end) == entry:
            before = replace(before, end=end)
            continue
        if before is not None:
            yield before
        before = entry
    if before is not None:
        yield before


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
