"""Basic blocks and the edges between them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from bcmend.bytecode.exception_ranges import range_of_each
from bcmend.bytecode.instructions import FunctionCode, TryRange, decoded_index
from bcmend.bytecode.opcodes import row


@dataclass(frozen=True, slots=True)
class Block:
    """Instructions ``start`` to ``end`` (exclusive), entered only at the first.

    A block ends where a try range begins or ends, so that it has one handler or none.
    """

    index: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Graph:
    """The control-flow graph of a function; block 0 is its entry."""

    function: FunctionCode
    blocks: tuple[Block, ...]  # in the order of their instructions
    block_of: tuple[int, ...]  # of each instruction
    successors: tuple[tuple[int, ...], ...]  # of each block, without exception edges, each once
    predecessors: tuple[tuple[int, ...], ...]  # the same
    handlers: tuple[TryRange | None, ...]  # of each block, the try range that covers it
    leading_to: tuple[tuple[int, ...], ...]  # of each block: its successors, then its handler
    reachable: frozenset[int]  # from the entry, through exceptions too

    def handler_block(self, block: int) -> int | None:
        """Return the block that handles exceptions of ``block``, if there is one."""
        entry = self.handlers[block]
        return None if entry is None else self.block_of[decoded_index(entry.handler)]

    def last(self, block: int) -> int:
        """Return the index of the last instruction of ``block``."""
        return self.blocks[block].end - 1


def build_graph(function: FunctionCode, starts_too: Collection[int] = ()) -> Graph:
    """Return the control-flow graph of ``function``, which has at least one instruction.

    A block begins at each of ``starts_too`` as well.
    """
    starts = sorted(_leaders(function).union(starts_too))
    count = len(function.instructions)
    blocks = tuple(
        Block(index, start, end)
        for index, (start, end) in enumerate(zip(starts, [*starts[1:], count], strict=True))
    )
    block_of: list[int] = []
    for block in blocks:
        block_of += [block.index] * (block.end - block.start)
    range_of = range_of_each(function.tries, count)
    handlers = tuple(range_of[block.start] for block in blocks)
    successors = tuple(_successors(function, block, block_of) for block in blocks)
    predecessors: list[list[int]] = [[] for _ in blocks]
    for source, targets in enumerate(successors):
        for target in targets:
            predecessors[target].append(source)
    caught = (() if each is None else (block_of[decoded_index(each.handler)],) for each in handlers)
    leading_to = tuple((*each, *more) for each, more in zip(successors, caught, strict=True))
    return Graph(
        function,
        blocks,
        tuple(block_of),
        successors,
        tuple(map(tuple, predecessors)),
        handlers,
        leading_to,
        walk(0, leading_to),
    )


def _leaders(function: FunctionCode) -> set[int]:
    leaders = {0}
    for index, instruction in enumerate(function.instructions):
        if instruction.target is not None:
            leaders.update((decoded_index(instruction.target), index + 1))
        elif row(instruction.op).ends is not None or row(instruction.op).suspends:
            leaders.add(index + 1)
    for entry in function.tries:
        leaders.update(map(decoded_index, (entry.start, entry.end, entry.handler)))
    leaders.discard(len(function.instructions))
    return leaders


def _successors(function: FunctionCode, block: Block, block_of: Sequence[int]) -> tuple[int, ...]:
    last = function.instructions[block.end - 1]
    found: dict[int, None] = {}
    if row(last.op).falls_through and block.end < len(block_of):
        found[block.index + 1] = None
    if last.target is not None:
        found[block_of[decoded_index(last.target)]] = None
    return tuple(found)


def walk(start: int, targets: Sequence[Sequence[int]], stop: int | None = None) -> frozenset[int]:
    """Return ``start`` and all that can be reached from it along ``targets`` without ``stop``."""
    if start == stop:
        return frozenset()
    seen, pending = {start}, [start]
    while pending:
        for target in targets[pending.pop()]:
            if target not in seen and target != stop:
                seen.add(target)
                pending.append(target)
    return frozenset(seen)
