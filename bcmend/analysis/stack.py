"""Compute symbolic operand stacks: which instructions can have made each operand.

Where paths join, a slot is the union of the slots on each path.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from bcmend.bytecode.instructions import Instruction, decoded_index
from bcmend.bytecode.opcodes import row
from bcmend.cfg.graph import Graph

#: Indices of the instructions that can have made a value; -1: exception handling made it.
Slot = frozenset[int]
Stack = tuple[Slot, ...]

_FROM_EXCEPTION: Slot = frozenset({-1})


class InconsistentStack(ValueError):
    """Raised where depths disagree, or an instruction takes more operands than there are."""


def operand_stacks(graph: Graph) -> tuple[Stack | None, ...]:
    """Return the operands before each instruction, bottom first; ``None`` where unreachable.

    A NULL counts as an operand, made by the instruction that pushes it. COPY and SWAP make nothing:
    the slots they move keep their makers. A handler starts with the lowest operands of its range,
    then one slot for the instruction's offset if the range asks for it, then the exception.

    Raises:
        InconsistentStack: no stack fits all the paths through the function.
    """
    before: list[Stack | None] = [None] * len(graph.function.instructions)
    arrived: dict[int, Stack] = {0: ()}  # what each block starts with, as far as it is known
    pending = [0]
    while pending:
        number = pending.pop()
        block = graph.blocks[number]
        stacks = [arrived[number]]
        for index in range(block.start, block.end):
            stacks.append(_after(graph, index, stacks[-1]))
        before[block.start : block.end] = stacks[:-1]
        for target, stack in _edges_out(graph, number, stacks):
            known = arrived.get(target)
            merged = stack if known is None else _merged(graph, target, known, stack)
            if merged != known:
                arrived[target] = merged
                pending.append(target)
    return tuple(before)


def _merged(graph: Graph, block: int, one: Stack, other: Stack) -> Stack:
    if len(one) != len(other):
        start, name = graph.blocks[block].start, graph.function.shape.qualname
        raise InconsistentStack(
            f"{name}: instruction {start} is reached with {len(one)} and {len(other)} operands"
        )
    return tuple(a if a == b else a | b for a, b in zip(one, other, strict=True))


def _after(graph: Graph, index: int, stack: Stack) -> Stack:
    """Return the stack that falls through an instruction, or is left where nothing does."""
    instruction = graph.function.instructions[index]
    _require(graph, index, stack, operands_needed(instruction))
    facts = row(instruction.op)
    if facts.moves is not None:
        depth = int(instruction.arg)
        if depth < 1:
            name = graph.function.shape.qualname
            raise InconsistentStack(f"{name}: {instruction.op} at {index} has no operand {depth}")
        if facts.moves == "copy":
            return (*stack, stack[-depth])
        if depth == 1:
            return stack
        return (*stack[:-depth], stack[-1], *stack[1 - depth : -1], stack[-depth])
    return _replaced(index, stack, facts.effect(instruction.arg))


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
    return row(instruction.op).needs(instruction.arg)


@cache
def _made_by(index: int) -> Slot:
    return frozenset({index})


def _edges_out(graph: Graph, number: int, stacks: list[Stack]) -> Iterator[tuple[int, Stack]]:
    """Yield the blocks that can follow, with the stack that each begins with."""
    block = graph.blocks[number]
    last = graph.function.instructions[block.end - 1]
    facts = row(last.op)
    if graph.handlers[number] is not None:
        yield from _edge_to_handler(graph, number, stacks[:-1])
    if facts.falls_through:
        yield graph.block_of[block.end], stacks[-1]
    if last.target is not None:
        target = graph.block_of[decoded_index(last.target)]
        _require(graph, block.end - 1, stacks[-2], facts.jump_effect[0])
        yield target, _replaced(block.end - 1, stacks[-2], facts.jump_effect)


def _edge_to_handler(graph: Graph, number: int, stacks: list[Stack]) -> Iterator[tuple[int, Stack]]:
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
