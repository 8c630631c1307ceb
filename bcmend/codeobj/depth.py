"""Operand depth of instructions being assembled.

Reads instructions with placed labels and flat try ranges; produces the greatest depth, and raises
where control flow makes no sense: depths that disagree, too few operands, an end that is run over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

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
    depths = _Depths(instructions)
    depths.arrive(0, 0)
    handling = _handlers(len(instructions), tries)
    while depths.pending:
        index = depths.pending.pop()
        depth = depths.known[index]
        while depth is not None:
            instruction = instructions[index]
            facts = row(instruction.op)
            pops, pushes = facts.effect(instruction.arg)
            _require(index, instruction, depth, int(instruction.arg) if facts.moves else pops)
            if instruction.target is not None or handling[index] is not None:
                for successor, arrival in _sideways(index, depth, instruction, placed, handling):
                    depths.arrive(successor, arrival)
            if not facts.falls_through:
                break
            index, depth = index + 1, depth - pops + pushes
            depth = depth if depths.is_news(index, depth) else None
    return depths.deepest


@dataclass(slots=True)
class _Depths:
    """The depth before each instruction, as far as it is known."""

    instructions: Sequence[Instruction]
    known: list[int | None] = field(init=False)
    pending: list[int] = field(default_factory=list)
    deepest: int = 1

    def __post_init__(self) -> None:
        self.known = [None] * len(self.instructions)

    def arrive(self, index: int, depth: int) -> None:
        if self.is_news(index, depth):
            self.pending.append(index)

    def is_news(self, index: int, depth: int) -> bool:
        """Note that ``index`` is reached with ``depth`` operands; say whether it was not yet."""
        if index == len(self.known):
            raise AssembleError(f"{self.instructions[-1].op} falls off the end")
        known = self.known[index]
        if known is None:
            self.known[index] = depth
            self.deepest = max(self.deepest, depth)
            return True
        if known != depth:
            op = self.instructions[index].op
            raise AssembleError(f"{op} at {index} has {known} operands or {depth}")
        return False


def _require(index: int, instruction: Instruction, depth: int, needed: int) -> None:
    if needed > depth:
        raise AssembleError(f"{instruction.op} at {index} needs {needed} operands, has {depth}")


def _handlers(count: int, tries: Sequence[TryRange]) -> list[TryRange | None]:
    handling: list[TryRange | None] = [None] * count
    for entry in tries:
        assert isinstance(entry.start, int) and isinstance(entry.end, int)
        handling[entry.start : entry.end] = [entry] * (entry.end - entry.start)
    return handling


def _sideways(
    index: int,
    depth: int,
    instruction: Instruction,
    placed: Mapping[Label, int],
    handling: Sequence[TryRange | None],
) -> Iterator[tuple[int, int]]:
    """Yield where control can go but to the next instruction, with the depth it brings."""
    if isinstance(instruction.target, Label):
        pops, pushes = row(instruction.op).jump_effect
        _require(index, instruction, depth, pops)
        yield placed[instruction.target], depth - pops + pushes
    entry = handling[index]
    if entry is not None:
        _require(index, instruction, depth, entry.depth)
        assert isinstance(entry.handler, int)
        yield entry.handler, entry.depth + entry.push_lasti + 1
