"""The facts about one function: the results of all analyses that rewriting reads."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from bcmend.analysis.liveness import Liveness, liveness
from bcmend.analysis.stack import Stack, operand_stacks
from bcmend.bytecode.instructions import FunctionCode, Instruction, decoded_index
from bcmend.bytecode.opcodes import row
from bcmend.cfg.dominance import immediate_post_dominators
from bcmend.cfg.graph import Graph, build_graph
from bcmend.cfg.regions import Branch, PostDominators, branches


@dataclass(frozen=True)
class Facts:
    """What is known about one function; what only some functions need is computed on first use."""

    function: FunctionCode
    graph: Graph
    stacks: tuple[Stack | None, ...]  # before each instruction; ``None`` where unreachable

    @cached_property
    def liveness(self) -> Liveness:
        return liveness(self.graph)

    @cached_property
    def branches(self) -> tuple[Branch, ...]:
        return branches(self.graph, lambda _: self.post_dominators)

    @cached_property
    def post_dominators(self) -> PostDominators:
        return immediate_post_dominators(self.graph)

    @cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        return self.function.instructions

    @property
    def argument_names(self) -> tuple[str, ...]:
        return self.function.shape.argnames

    def operand(self, index: int, position: int) -> frozenset[int]:
        """Return what can have made an operand, -1 being the top; empty where there is none."""
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
        """Return the instruction whose try ranges apply to an instruction: mostly itself.

        From Python 3.12 on, a conditional jump that was inverted to jump forward is in no range,
        though what makes its condition is (``normalize_jumps`` in CPython's flowgraph.c).
        """
        if index == 0 or not row(self.instructions[index].op).tests_truth:
            return index
        is_covered = any(each.covers(index) for each in self.function.tries)
        return index if is_covered else index - 1

    def handlers_over(self, index: int) -> list[int]:
        """Return the positions in ``function.tries`` of the handlers of an instruction.

        Where a block is left early its range has gaps: all ranges with one handler are counted.
        """
        tries, index = self.function.tries, self.covered(index)
        covering = {entry.handler for entry in tries if entry.covers(index)}
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
        """Return the positions of the innermost of ``handlers``, which all the others enclose."""
        starts = ((each, self.function.tries[each].bounds[0]) for each in handlers)
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
    """Analyse ``function``; a block begins at each of ``starts_too`` as well."""
    graph = build_graph(function, starts_too)
    return Facts(function, graph, operand_stacks(graph))
