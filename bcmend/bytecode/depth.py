"""The greatest operand depth of instructions being assembled, and whether control flow is sound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bcmend.bytecode.exception_ranges import range_of_each
from bcmend.bytecode.instructions import AssembleError, Instruction, Label, TryRange, decoded_index
from bcmend.bytecode.opcodes import row


def check_depths(
    instructions: Sequence[Instruction], placed: Mapping[Label, int], tries: Sequence[TryRange]
) -> int:
    """Return the greatest operand depth, at least 1."""
    if not instructions:
        raise AssembleError("there are no instructions")
    handling = range_of_each(tries, len(instructions))
    depths: list[int | None] = [None] * len(instructions)
    most = 1
    pending = [(0, 0)]
    while pending:
        index, depth = pending.pop()
        falls = True
        while falls:  # through to the next instruction
            if index == len(instructions):
                raise AssembleError(f"{instructions[-1].op} falls off the end")
            instruction, known = instructions[index], depths[index]
            if known is not None:
                _require_same(index, instruction, depth, known)
                break
            depths[index] = depth
            facts = row(instruction.op)
            pops, pushes = facts.effect(instruction.arg)
            needed = int(instruction.arg) if facts.moves else pops
            if needed > depth:
                _require(index, instruction, depth, needed)
            if instruction.target is not None or handling[index] is not None:
                pending.extend(_sideways(index, depth, instruction, placed, handling))
            if facts.room:
                most = max(most, depth - pops + pushes + facts.room)
            index, depth, falls = index + 1, depth - pops + pushes, facts.falls_through
    return max([most, *filter(None, depths)])


def _require_same(index: int, instruction: Instruction, depth: int, known: int) -> None:
    if known != depth:
        raise AssembleError(f"{instruction.op} at {index} has {known} operands or {depth}")


def _require(index: int, instruction: Instruction, depth: int, needed: int) -> None:
    if needed > depth:
        raise AssembleError(f"{instruction.op} at {index} needs {needed} operands, has {depth}")


def _sideways(
    index: int,
    depth: int,
    instruction: Instruction,
    placed: Mapping[Label, int],
    handling: Sequence[TryRange | None],
) -> Iterator[tuple[int, int]]:
    """Yield the successors other than the next instruction, with the depth at each."""
    if isinstance(instruction.target, Label):
        pops, pushes = row(instruction.op).jump_effect
        _require(index, instruction, depth, pops)
        yield placed[instruction.target], depth - pops + pushes
    entry = handling[index]
    if entry is not None:
        _require(index, instruction, depth, entry.depth)
        yield decoded_index(entry.handler), entry.depth + entry.push_lasti + 1
