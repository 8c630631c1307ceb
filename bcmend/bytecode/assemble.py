"""Assemble canonical instructions to a code object.

Verifies what CPython itself takes on trust: labels, operand depths, variables, arguments of the
shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from types import CodeType
from typing import Final

from bcmend.bytecode.depth import check_depths
from bcmend.bytecode.exception_ranges import flatten, placed_index
from bcmend.bytecode.instructions import (
    AssembleError,
    FunctionCode,
    Instruction,
    Label,
    Shape,
    TryRange,
    argument_count,
    decoded_index,
    retargeted,
)
from bcmend.bytecode.layout import lay_out, lower, pack
from bcmend.bytecode.opcodes import NOTS, TRUTH_JUMPS, TRUTHS, row
from bcmend.bytecode.tables import Tables

Item = Instruction | Label


def assemble(shape: Shape, items: Sequence[Item], tries: Sequence[TryRange]) -> CodeType:
    """Return the code object of these instructions.

    Locals that are not in ``shape`` are added; cells and free variables are not. Each label is
    among ``items`` once. Of several ``tries`` around an instruction, the innermost has it.

    Raises:
        AssembleError: the instructions do not make a sound code object.
        UnknownOpcode: an instruction has no facts.
    """
    instructions, label_index = place_labels(items)
    flat_tries = flatten(tries, label_index, len(instructions))
    depth = check_depths(instructions, label_index, flat_tries)
    _check_shape(shape, instructions)
    _check_truths(instructions)
    tables = Tables.of(shape, instructions)
    units = lower(instructions, label_index, tables)
    offsets = lay_out(units, len(instructions))
    return pack(shape, tables, units, offsets, flat_tries, depth)


def labelled(function: FunctionCode) -> tuple[list[Item], list[TryRange]]:
    """Return the instructions and tries of ``function`` with labels in place of indices."""
    labels: dict[int, Label] = {}

    def label(place: int | Label) -> Label:
        index = decoded_index(place)
        return labels.setdefault(index, Label(f"at {index}"))

    tries = [entry.moved(label) for entry in function.tries]
    instructions = retargeted(function.instructions, label)
    items: list[Item] = []
    for index, instruction in enumerate(instructions):
        if index in labels:
            items.append(labels[index])
        items.append(instruction)
    if len(instructions) in labels:
        items.append(labels[len(instructions)])
    return items, tries


def place_labels(items: Sequence[Item]) -> tuple[list[Instruction], dict[Label, int]]:
    """Return the instructions alone, and which of them each label stands before."""
    instructions: list[Instruction] = []
    placed: dict[Label, int] = {}
    for item in items:
        if isinstance(item, Instruction):
            instructions.append(item)
        elif item in placed:
            raise AssembleError(f"{item} is placed twice")
        else:
            placed[item] = len(instructions)
    for instruction in instructions:
        facts = row(instruction.op)
        if facts.argument in _CHECKED_ARGUMENTS:
            _check_argument(instruction)
        jumps = facts.jump is not None
        if jumps != (instruction.target is not None):
            raise AssembleError(f"{instruction.op} with target {instruction.target}")
        if jumps and placed_index(instruction.target, placed) == len(instructions):
            raise AssembleError(f"{instruction.op} jumps behind the last instruction")
    if instructions and row(instructions[-1].op).jump not in (None, "always"):
        raise AssembleError(f"{instructions[-1].op} falls off the end")
    return instructions, placed


#: Kinds of arguments that an operand count may depend on; how many parts they have.
_PARTS: Final = {"flagged_name": 2, "super": 3}
#: CPython stores an argument in 32 bits, of which one is the sign.
_MOST: Final = 2**31
_CHECKED_ARGUMENTS: Final = frozenset(["int", *_PARTS])


def _check_argument(instruction: Instruction) -> None:
    """Raise ``AssembleError`` for an argument from which no operand count can be computed."""
    kind, arg = row(instruction.op).argument, instruction.arg
    if kind == "int":
        fits = isinstance(arg, int) and 0 <= arg < _MOST
    else:
        fits = isinstance(arg, tuple) and len(arg) == _PARTS[kind]
    if not fits:
        raise AssembleError(f"{instruction.op} cannot have the argument {arg!r}")


def _check_truths(instructions: Sequence[Instruction]) -> None:
    """Raise ``AssembleError`` for a truth that the next instruction does not read.

    Dynamo takes it for granted that it does (``TO_BOOL``, torch/_dynamo/symbolic_convert.py).
    """
    for one, after in pairwise(instructions):
        if one.op in TRUTHS and after.op not in TRUTH_JUMPS | NOTS:
            raise AssembleError(f"{one.op} in front of {after.op}")


def _check_shape(shape: Shape, instructions: Sequence[Instruction]) -> None:
    arguments = argument_count(shape.argcount, shape.kwonlyargcount, shape.flags)
    if arguments != len(shape.argnames) or shape.posonlyargcount > shape.argcount:
        raise AssembleError(f"{shape.name}: {arguments} arguments, names {shape.argnames}")
    if shape.varnames[:arguments] != shape.argnames:
        raise AssembleError(f"{shape.name}: locals {shape.varnames} do not begin with arguments")
    for names in (shape.varnames, (*shape.cellvars, *shape.freevars)):
        if len(set(names)) != len(names):
            raise AssembleError(f"{shape.name}: a variable is named twice in {names}")
    copied = sum(each.arg for each in instructions if each.op == "COPY_FREE_VARS")
    free = len(shape.freevars)
    if copied != free:
        raise AssembleError(f"{shape.name}: copies {copied} of {free} free variables")
    made = {each.arg for each in instructions if each.op == "MAKE_CELL"}
    if not made.issuperset(shape.cellvars):
        raise AssembleError(f"{shape.name}: no MAKE_CELL for some of {shape.cellvars}")
