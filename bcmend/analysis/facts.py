"""The frozen bundle of everything that rewriting reads about one function.

Produced once from a decoded function; every field is the result of one analysis. Parts that only
some functions need are computed on first use.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from bcmend.analysis.liveness import Liveness, liveness
from bcmend.analysis.stack import operand_stacks
from bcmend.cfg.graph import Graph, build_graph, decoded_index
from bcmend.cfg.regions import Branch, branches
from bcmend.codeobj.decode import FunctionCode, Instruction
from bcmend.codeobj.opcodes import row

__all__ = ["Facts", "facts_of"]

Stack = tuple[frozenset[int], ...]


@dataclass(frozen=True)
class Facts:
    """What is known of one function.

    Attributes:
        function: its canonical instructions.
        graph: its basic blocks.
        stacks: the operand stack before each instruction; ``None`` where unreachable.
    """

    function: FunctionCode
    graph: Graph
    stacks: tuple[Stack | None, ...]

    @cached_property
    def liveness(self) -> Liveness:
        return liveness(self.graph)

    @cached_property
    def branches(self) -> tuple[Branch, ...]:
        return branches(self.graph)

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        return self.function.instructions

    @property
    def argument_names(self) -> tuple[str, ...]:
        return self.function.shape.argnames

    def operand(self, index: int, position: int) -> frozenset[int]:
        """Return what can have made an operand of an instruction, ``position`` -1 being the top.

        Empty where there is no such operand.
        """
        stack = self.stacks[index]
        return frozenset() if stack is None or len(stack) < -position else stack[position]

    def depth_before(self, index: int) -> int | None:
        """Return how many operands lie on the stack before an instruction."""
        stack = self.stacks[index]
        return None if stack is None else len(stack)

    def indices_of(self, blocks: frozenset[int]) -> list[int]:
        """Return the instructions of ``blocks``, in order."""
        return [
            index
            for number in sorted(blocks)
            for index in range(self.graph.blocks[number].start, self.graph.blocks[number].end)
        ]

    def covered(self, index: int) -> int:
        """Return where the handlers of an instruction are written down: mostly at itself.

        From Python 3.12 on, a conditional jump that was turned round to jump forward is in no
        range, though what makes its condition is (``normalize_jumps`` in CPython's flowgraph.c).
        """
        if index == 0 or not row(self.instructions[index].op).tests_truth:
            return index
        tries = self.function.tries
        found = (decoded_index(each.start) <= index < decoded_index(each.end) for each in tries)
        return index if any(found) else index - 1

    def handlers_over(self, index: int) -> list[int]:
        """Return the positions in ``function.tries`` of the handlers of an instruction.

        Where a block is left early its range has gaps: all ranges with one handler are counted.
        """
        tries, index = self.function.tries, self.covered(index)
        covering = {
            entry.handler
            for entry in tries
            if decoded_index(entry.start) <= index < decoded_index(entry.end)
        }
        return [position for position, entry in enumerate(tries) if entry.handler in covering]

    def all_handlers_over(self, index: int) -> frozenset[int]:
        """Return the positions of the handlers of an instruction, and of the handlers of those."""
        found: set[int] = set()
        pending = self.handlers_over(index)
        while pending:
            position = pending.pop()
            if position not in found:
                found.add(position)
                handler = decoded_index(self.function.tries[position].handler)
                pending.extend(self.handlers_over(handler))
        return frozenset(found)

    def innermost(self, handlers: frozenset[int]) -> list[int]:
        """Return the positions of the one of ``handlers`` that all the others are around."""
        starts = ((each, decoded_index(self.function.tries[each].start)) for each in handlers)
        return [each for each, start in starts if self.all_handlers_over(start) == handlers]

    @cached_property
    def stores(self) -> dict[str, list[int]]:
        """For each local or cell, the instructions that bind it."""
        found: dict[str, list[int]] = {}
        for index, instruction in enumerate(self.instructions):
            if row(instruction.op).writes in ("local", "cell"):
                found.setdefault(instruction.arg, []).append(index)
        return found


def facts_of(function: FunctionCode, starts_too: Collection[int] = ()) -> Facts:
    """Analyse ``function``; a block begins at each of ``starts_too`` as well.

    Raises:
        ValueError: the code cannot be analysed (an unknown opcode, an inconsistent stack).
    """
    graph = build_graph(function, starts_too)
    return Facts(function, graph, operand_stacks(graph))
