"""Symbolic operand stacks: which instructions can have made each operand.

Reads a ``Graph``; produces the stack before each instruction. Where ways join, a slot is the union
of what the ways bring. Stacks are followed block by block until nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from bcmend.cfg.graph import Graph, decoded_index
from bcmend.codeobj.decode import Instruction
from bcmend.codeobj.opcodes import row

#: Indices of the instructions that can have made a value; -1: exception handling made it.
Slot = frozenset[int]
Stack = tuple[Slot, ...]

_FROM_EXCEPTION: Slot = frozenset({-1})

#: How far an instruction looks at operands that it does not take: from the top, before it runs,
#: and as much further as its argument says if it is counted there.
_LOOKS_AT: Final = {
    "LIST_APPEND": 1,
    "LIST_EXTEND": 1,
    "SET_ADD": 1,
    "SET_UPDATE": 1,
    "DICT_UPDATE": 1,
    "MAP_ADD": 2,
    "DICT_MERGE": 1,
    "RERAISE": 1,
}
_LOOKS_AT_FIXED: Final = {
    "FOR_ITER": 1,
    "SEND": 2,
    "GET_ANEXT": 1,
    "GET_LEN": 1,
    "IMPORT_FROM": 1,
    "MATCH_MAPPING": 1,
    "MATCH_SEQUENCE": 1,
    "MATCH_KEYS": 2,
    "CHECK_EXC_MATCH": 2,
    "WITH_EXCEPT_START": 4,
}


class InconsistentStack(ValueError):
    """Raised where depths disagree, or an instruction takes more operands than there are."""


def operand_stacks(graph: Graph) -> tuple[Stack | None, ...]:
    """Return the operands before each instruction, bottom first; ``None`` where unreachable.

    A NULL counts as an operand, made by the instruction that pushes it. COPY and SWAP make nothing:
    the slots they move keep their makers. A handler starts with the lowest operands of its range,
    then one slot for the instruction's offset if the range asks for it, then the exception.

    Raises:
        InconsistentStack: no stack fits all the ways through the function.
    """
    arrivals = _Arrivals(graph)
    arrivals.bring(0, ())
    before: list[Stack | None] = [None] * len(graph.function.instructions)
    while arrivals.pending:
        number = arrivals.pending.pop()
        block = graph.blocks[number]
        stacks = _through(graph, number, arrivals.stacks[number])
        before[block.start : block.end] = stacks[:-1]
        for target, stack in _ways_out(graph, number, stacks):
            arrivals.bring(target, stack)
    return tuple(before)


@dataclass(slots=True)
class _Arrivals:
    """The stack that each block starts with, as far as it is known."""

    graph: Graph
    stacks: dict[int, Stack] = field(default_factory=dict)
    pending: list[int] = field(default_factory=list)

    def bring(self, block: int, stack: Stack) -> None:
        known = self.stacks.get(block)
        merged = stack if known is None else self._merge(block, known, stack)
        if merged != known:
            self.stacks[block] = merged
            self.pending.append(block)

    def _merge(self, block: int, one: Stack, other: Stack) -> Stack:
        if len(one) != len(other):
            start = self.graph.blocks[block].start
            name = self.graph.function.shape.qualname
            raise InconsistentStack(
                f"{name}: instruction {start} is reached with {len(one)} and {len(other)} operands"
            )
        return tuple(a if a == b else a | b for a, b in zip(one, other, strict=True))


def _through(graph: Graph, block: int, stack: Stack) -> list[Stack]:
    """Return the stack before each instruction of ``block``, and the one at its end.

    The last is the stack that falls through, or is left where nothing does.
    """
    bounds = graph.blocks[block]
    stacks = [stack]
    for index in range(bounds.start, bounds.end):
        stack = _after(graph, index, graph.function.instructions[index], stack)
        stacks.append(stack)
    return stacks


def _after(graph: Graph, index: int, instruction: Instruction, stack: Stack) -> Stack:
    _require(graph, index, stack, operands_needed(instruction))
    facts = row(instruction.op)
    if facts.moves is not None:
        depth = int(instruction.arg)
        if depth < 1:
            name = graph.function.shape.qualname
            raise InconsistentStack(f"{name}: {instruction.op} at {index} has no operand {depth}")
        if facts.moves == "copy":
            return (*stack, stack[-depth])
        return _swapped(stack, depth)
    return _replaced(index, stack, facts.effect(instruction.arg))


def _swapped(stack: Stack, depth: int) -> Stack:
    if depth == 1:
        return stack
    return (*stack[:-depth], stack[-1], *stack[1 - depth : -1], stack[-depth])


def _replaced(index: int, stack: Stack, effect: tuple[int, int]) -> Stack:
    pops, pushes = effect
    return stack[: len(stack) - pops] + (_made_by(index),) * pushes


def _require(graph: Graph, index: int, stack: Stack, count: int) -> None:
    if len(stack) < count:
        function = graph.function
        raise InconsistentStack(
            f"{function.shape.qualname}: {function.instructions[index].op} at {index} takes "
            f"{count} operands of {len(stack)}"
        )


def operands_needed(instruction: Instruction) -> int:
    """Return how many operands have to be there when an instruction runs."""
    known = row(instruction.op)
    needed = known.effect(instruction.arg)[0]
    if known.moves:
        return max(needed, int(instruction.arg))
    if instruction.op in _LOOKS_AT:
        return max(needed, int(instruction.arg) + _LOOKS_AT[instruction.op])
    return max(needed, _LOOKS_AT_FIXED.get(instruction.op, 0))


@cache
def _made_by(index: int) -> Slot:
    return frozenset({index})


def _ways_out(graph: Graph, number: int, stacks: list[Stack]) -> Iterator[tuple[int, Stack]]:
    """Yield the blocks that can follow, with the stack that each begins with."""
    block = graph.blocks[number]
    last = graph.function.instructions[block.end - 1]
    facts = row(last.op)
    if graph.handlers[number] is not None:
        yield from _ways_to_handler(graph, number, stacks[:-1])
    if facts.falls_through:
        yield graph.block_of[block.end], stacks[-1]
    if last.target is not None:
        target = graph.block_of[decoded_index(last.target)]
        _require(graph, block.end - 1, stacks[-2], facts.jump_effect[0])
        yield target, _replaced(block.end - 1, stacks[-2], facts.jump_effect)


def _ways_to_handler(graph: Graph, number: int, stacks: list[Stack]) -> Iterator[tuple[int, Stack]]:
    handling = graph.handlers[number]
    assert handling is not None
    handler = graph.block_of[decoded_index(handling.handler)]
    pushed = (_FROM_EXCEPTION,) * (1 + handling.push_lasti)
    for index, stack in enumerate(stacks, graph.blocks[number].start):
        if len(stack) < handling.depth:
            raise InconsistentStack(
                f"{graph.function.shape.qualname}: the handler of instruction {index} wants "
                f"{handling.depth} operands of {len(stack)}"
            )
        yield handler, stack[: handling.depth] + pushed
