"""Take apart the loads that push a callable and a NULL, or a method and its ``self``, at once.

Which of the two a method load pushes is known only when it runs, and neither can be kept in a
variable. Taken apart, it pushes the bound method, and a NULL by an instruction of its own: what
calls them cannot tell. Reads and produces a ``FunctionCode``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from bcmend.codeobj import behavior, emit
from bcmend.codeobj.decode import FunctionCode, Instruction, Label

__all__ = ["may_push_null", "pushes_null", "with_explicit_nulls"]


def pushes_null(instruction: Instruction) -> bool:
    """Whether a load pushes a second operand, which may be a NULL, beside what it loads."""
    if instruction.op == "LOAD_METHOD":
        return True
    arg = instruction.arg
    return instruction.op in ("LOAD_GLOBAL", "LOAD_ATTR") and isinstance(arg, tuple) and arg[0]


def may_push_null(instruction: Instruction) -> bool:
    """Whether a NULL may be among what an instruction pushes."""
    arg = instruction.arg
    has_flag = isinstance(arg, tuple) and arg[:1] == (True,)
    return has_flag or instruction.op in ("PUSH_NULL", "LOAD_METHOD", "LOAD_FAST_AND_CLEAR")


def with_explicit_nulls(function: FunctionCode, loads: Collection[int]) -> FunctionCode:
    """Return ``function`` with the instructions ``loads`` taken apart."""
    instructions: list[Instruction] = []
    moved_to: list[int] = []
    for index, instruction in enumerate(function.instructions):
        moved_to.append(len(instructions))
        if index in loads and pushes_null(instruction):
            instructions.extend(_apart(instruction))
        else:
            instructions.append(instruction)
    moved_to.append(len(instructions))

    def moved(place: int | Label) -> int:
        assert isinstance(place, int)
        return moved_to[place]

    return FunctionCode(
        function.shape,
        tuple(
            each if each.target is None else replace(each, target=moved(each.target))
            for each in instructions
        ),
        tuple(
            replace(
                entry,
                start=moved(entry.start),
                end=moved(entry.end),
                handler=moved(entry.handler),
            )
            for entry in function.tries
        ),
    )


def _apart(load: Instruction) -> tuple[Instruction, ...]:
    null = Instruction("PUSH_NULL", None, offset=load.offset, location=load.location)
    if load.op == "LOAD_GLOBAL":
        plain = replace(load, arg=(False, load.arg[1]))
        return (null, plain) if behavior.NULL_BEFORE_CALLABLE else (plain, null)
    name = load.arg if load.op == "LOAD_METHOD" else load.arg[1]
    (attribute,) = emit.load_attribute(name, load.location)
    attribute = replace(attribute, offset=load.offset)
    if not behavior.NULL_BEFORE_CALLABLE:
        return attribute, null
    (swap,) = emit.swap(2, load.location)
    return attribute, null, replace(swap, offset=load.offset)
