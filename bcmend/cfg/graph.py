"""Basic blocks and the edges between them.

Reads a decoded ``FunctionCode``; produces a ``Graph``. A block also ends where a try range begins
or ends, so all the instructions of a block have the same handler. Exception edges are kept apart
from the others: ``successors`` and ``predecessors`` leave them out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from bcmend.codeobj.decode import FunctionCode, TryRange
from bcmend.codeobj.opcodes import row


@dataclass(frozen=True, slots=True)
class Edge:
    """A way from block to block; ``kind`` is ``"next"``, ``"jump"`` or ``"exception"``."""

    source: int
    target: int
    kind: str


@dataclass(frozen=True, slots=True)
class Block:
    """Instructions ``start`` to ``end`` (exclusive), always run from the first on."""

    index: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Graph:
    """The control-flow graph of a function; block 0 is its entry.

    Attributes:
        function: the code.
        blocks: in the order of their instructions.
        edges: all of them, exception edges too.
        block_of: the block of each instruction.
        successors: of each block, without exception edges, each once.
        predecessors: of each block, without exception edges, each once.
        handlers: of each block, the try range that covers it.
        reachable: blocks that can be reached from the entry, through exceptions too.
    """

    function: FunctionCode
    blocks: tuple[Block, ...]
    edges: tuple[Edge, ...]
    block_of: tuple[int, ...]
    successors: tuple[tuple[int, ...], ...]
    predecessors: tuple[tuple[int, ...], ...]
    handlers: tuple[TryRange | None, ...]
    reachable: frozenset[int]

    def handler_block(self, block: int) -> int | None:
        """Return the block that exceptions of ``block`` go to, if one of the function's does."""
        entry = self.handlers[block]
        return None if entry is None else self.block_of[decoded_index(entry.handler)]

    def last(self, block: int) -> int:
        """Return the index of the last instruction of ``block``."""
        return self.blocks[block].end - 1


def decoded_index(place: object) -> int:
    """Return ``place`` as the index that it is in decoded code.

    Raises:
        TypeError: it is a label; the code is still being built.
    """
    if not isinstance(place, int):
        raise TypeError(f"{place} is not an index; graphs are made of decoded code")
    return place


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
    block_of = tuple(block.index for block in blocks for _ in range(block.start, block.end))
    handlers = _handlers(function, blocks)
    edges = tuple(_edges(function, blocks, block_of, handlers))
    successors: list[list[int]] = [[] for _ in blocks]
    predecessors: list[list[int]] = [[] for _ in blocks]
    for edge in edges:
        if edge.kind != "exception" and edge.target not in successors[edge.source]:
            successors[edge.source].append(edge.target)
            predecessors[edge.target].append(edge.source)
    return Graph(
        function,
        blocks,
        edges,
        block_of,
        tuple(map(tuple, successors)),
        tuple(map(tuple, predecessors)),
        handlers,
        _reachable(len(blocks), edges),
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


def _handlers(function: FunctionCode, blocks: Sequence[Block]) -> tuple[TryRange | None, ...]:
    owner: list[TryRange | None] = [None] * len(function.instructions)
    for entry in function.tries:
        start, end = decoded_index(entry.start), decoded_index(entry.end)
        owner[start:end] = [entry] * (end - start)
    return tuple(owner[block.start] for block in blocks)


def _edges(
    function: FunctionCode,
    blocks: Sequence[Block],
    block_of: Sequence[int],
    handlers: Sequence[TryRange | None],
) -> Iterator[Edge]:
    for block in blocks:
        last = function.instructions[block.end - 1]
        facts = row(last.op)
        if facts.falls_through and block.end < len(block_of):
            yield Edge(block.index, block.index + 1, "next")
        if last.target is not None:
            yield Edge(block.index, block_of[decoded_index(last.target)], "jump")
        entry = handlers[block.index]
        if entry is not None:
            yield Edge(block.index, block_of[decoded_index(entry.handler)], "exception")


def _reachable(count: int, edges: Sequence[Edge]) -> frozenset[int]:
    targets: list[list[int]] = [[] for _ in range(count)]
    for edge in edges:
        targets[edge.source].append(edge.target)
    return walk(0, targets)


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
