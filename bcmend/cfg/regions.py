"""Regions of a graph: the two arms of a branch and where they meet again; loops.

Reads a ``Graph`` and its dominators; produces ``Branch`` and ``Loop`` records. The join of a branch
is its block's immediate post-dominator (Ferrante, Ottenstein and Warren, "The Program Dependence
Graph and Its Use in Optimization").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bcmend.cfg.dominance import (
    EXIT,
    always_raises,
    immediate_dominators,
    immediate_post_dominators,
)
from bcmend.cfg.graph import Graph, decoded_index, walk
from bcmend.codeobj.opcodes import row


@dataclass(frozen=True, slots=True)
class Branch:
    """A two-way jump on the truth of a value.

    Attributes:
        jump: the jump's index among the instructions.
        taken: the block that the jump goes to.
        fallthrough: the block after the jump. The entry of an empty arm is the join.
        join: the block where the arms meet, or ``EXIT`` if they only meet in the return (or never).
        taken_blocks: blocks that can be reached from ``taken`` before the join, without exceptions.
        fallthrough_blocks: the same from ``fallthrough``; the two overlap where a short-circuit
            condition or a loop shares blocks.
        taken_raises: whether every way through the arm ends in a raise.
        fallthrough_raises: the same for the other arm.
    """

    jump: int
    taken: int
    fallthrough: int
    join: int
    taken_blocks: frozenset[int]
    fallthrough_blocks: frozenset[int]
    taken_raises: bool
    fallthrough_raises: bool


@dataclass(frozen=True, slots=True)
class Loop:
    """A natural loop: the block that dominates it, and all its blocks, the header too."""

    header: int
    blocks: frozenset[int]


def branches(graph: Graph) -> tuple[Branch, ...]:
    """Return every reachable branch on a truth value, in the order of their jumps."""
    instructions = graph.function.instructions
    jumping = [
        block.index
        for block in graph.blocks
        if block.index in graph.reachable and row(instructions[block.end - 1].op).tests_truth
    ]
    if not jumping:
        return ()
    post_dominators = immediate_post_dominators(graph)
    raising = always_raises(graph)
    return tuple(_branch(graph, block, post_dominators, raising) for block in jumping)


def _branch(
    graph: Graph, block: int, post_dominators: Sequence[int | None], raising: frozenset[int]
) -> Branch:
    jump = graph.last(block)
    taken = graph.block_of[decoded_index(graph.function.instructions[jump].target)]
    fallthrough = graph.block_of[jump + 1]
    post_dominator = post_dominators[block]
    join = EXIT if post_dominator is None else post_dominator
    return Branch(
        jump,
        taken,
        fallthrough,
        join,
        walk(taken, graph.successors, join),
        walk(fallthrough, graph.successors, join),
        taken in raising,
        fallthrough in raising,
    )


def loops(graph: Graph) -> tuple[Loop, ...]:
    """Return the natural loops, in the order of their headers; one for each header."""
    if all(edge.target > edge.source for edge in graph.edges):
        return ()
    dominators = immediate_dominators(graph)
    predecessors: list[list[int]] = [[] for _ in graph.blocks]
    for edge in graph.edges:
        if edge.source in graph.reachable:
            predecessors[edge.target].append(edge.source)
    bodies: dict[int, frozenset[int]] = {}
    for edge in graph.edges:
        # The header need not come first: blocks can be laid out in any order.
        if edge.source in graph.reachable and _dominates(edge.target, edge.source, dominators):
            body = walk(edge.source, predecessors, stop=edge.target) | {edge.target}
            bodies[edge.target] = bodies.get(edge.target, frozenset()) | body
    return tuple(Loop(header, bodies[header]) for header in sorted(bodies))


def _dominates(one: int, other: int | None, dominators: Sequence[int | None]) -> bool:
    while other is not None and other != one:
        other = dominators[other]
    return other == one
