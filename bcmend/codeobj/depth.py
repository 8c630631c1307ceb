"""Operand depth of instructions being assembled.

Reads instructions with placed labels and flat try ranges; produces the greatest depth, and raises
where control flow makes no sense: depths that disagree, too few operands, an end that is run over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bcmend.codeobj.decode import Instruction, Label, TryRange
from bcmend.codeobj.errors import AssembleError
from bcmend.codeobj.opcodes import row


def check_depths(
    instructions: Sequence[Instruction],
    placed: Mapping[Label, int],
    tries: Sequence[TryRange],
) -> int:
    """Return the greatest operand depth, at least 1.

    Raises:
        AssembleError: two ways to an instruction bring different depths, an instruction or a
            handler needs more operands than there are, or the last instruction falls through.
    """
    if not instructions:
        raise AssembleError("there are no instructions")
    handling = _handlers(len(instructions), tries)
    depths: list[int | None] = [None] * len(instructions)
    depths[0] = 0
    pending, deepest = [0], 1
    while pending:
        index = pending.pop()
        depth = depths[index]
        assert depth is not None
        for successor, arrival in _ways_out(index, depth, instructions[index], placed, handling):
            if successor == len(instructions):
                raise AssembleError(f"{instructions[index].op} falls off the end")
            deepest = max(deepest, arrival)
            known = depths[successor]
            if known is None:
                depths[successor] = arrival
                pending.append(successor)
            elif known != arrival:
                op = instructions[successor].op
                raise AssembleError(f"{op} at {successor} has {known} operands or {arrival}")
    return deepest


def _handlers(count: int, tries: Sequence[TryRange]) -> list[TryRange | None]:
    handling: list[TryRange | None] = [None] * count
    for entry in tries:
        assert isinstance(entry.start, int) and isinstance(entry.end, int)
        handling[entry.start : entry.end] = [entry] * (entry.end - entry.start)
    return handling


def _ways_out(
    index: int,
    depth: int,
    instruction: Instruction,
    placed: Mapping[Label, int],
    handling: Sequence[TryRange | None],
) -> list[tuple[int, int]]:
    """Return each instruction that can be next, with the depth it starts with."""
    facts, entry = row(instruction.op), handling[index]
    pops, pushes = facts.effect(instruction.arg)
    needed = max(pops, int(instruction.arg)) if facts.moves else pops
    ways = [(index + 1, depth - pops + pushes)] if facts.falls_through else []
    if isinstance(instruction.target, Label):
        pops, pushes = facts.jump_effect
        needed = max(needed, pops)
        ways.append((placed[instruction.target], depth - pops + pushes))
    if entry is not None:
        needed = max(needed, entry.depth)
        assert isinstance(entry.handler, int)
        ways.append((entry.handler, entry.depth + entry.push_lasti + 1))
    if needed > depth:
        raise AssembleError(f"{instruction.op} at {index} needs {needed} operands, has {depth}")
    return ways
