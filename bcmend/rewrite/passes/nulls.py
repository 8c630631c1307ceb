"""Split the loads that push a callable and a NULL, or a method and its ``self``, at once.

Which of the two a method load pushes is known only when it runs, and a NULL cannot be stored in a
variable. Split, it pushes the bound method, and a NULL by an instruction of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from bcmend.bytecode import behavior, emit
from bcmend.bytecode.instructions import FunctionCode, Instruction
from bcmend.bytecode.opcodes import (
    ATTRIBUTE_LOADS,
    CONSTANT_LOADS,
    GLOBAL_LOADS,
    METHOD_LOADS,
    NULLS,
    SAVED_LOCALS,
)
from bcmend.rewrite.passes.rearrange import rewritten


def pushes_null(instruction: Instruction) -> bool:
    """Return whether a load pushes a second operand, which may be a NULL, beside what it loads."""
    if instruction.op in METHOD_LOADS:
        return True
    arg = instruction.arg
    is_load = instruction.op in GLOBAL_LOADS | ATTRIBUTE_LOADS
    return is_load and isinstance(arg, tuple) and arg[0]


def may_push_null(instruction: Instruction) -> bool:
    """Return whether a NULL may be among what an instruction pushes."""
    arg = instruction.arg
    is_load = (
        instruction.op not in CONSTANT_LOADS
    )  # of which a constant may look like a flag and a name
    has_flag = is_load and isinstance(arg, tuple) and arg[:1] == (True,)
    return has_flag or instruction.op in NULLS | METHOD_LOADS | SAVED_LOCALS


def with_explicit_nulls(function: FunctionCode, loads: Collection[int]) -> FunctionCode:
    """Return ``function`` with the instructions ``loads`` split."""

    def replacement(index: int, instruction: Instruction) -> Sequence[Instruction]:
        is_split = index in loads and pushes_null(instruction)
        return _apart(instruction) if is_split else (instruction,)

    return rewritten(function, replacement)


def _apart(load: Instruction) -> tuple[Instruction, ...]:
    null = emit.push_null(load.location)[0]._replace(offset=load.offset)
    if load.op in GLOBAL_LOADS:
        plain = load._replace(arg=(False, load.arg[1]))
        return (null, plain) if behavior.NULL_BEFORE_CALLABLE else (plain, null)
    name = load.arg if load.op in METHOD_LOADS else load.arg[1]
    (attribute,) = emit.load_attribute(name, load.location)
    attribute = attribute._replace(offset=load.offset)
    if not behavior.NULL_BEFORE_CALLABLE:
        return attribute, null
    (swap,) = emit.swap(2, load.location)
    return attribute, null, swap._replace(offset=load.offset)
