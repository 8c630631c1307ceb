"""The two arms of a branch, and where they meet again.

The join of a branch is its block's immediate post-dominator (Ferrante, Ottenstein and Warren, "The
Program Dependence Graph and Its Use in Optimization").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bcmend.bytecode.instructions import decoded_index
from bcmend.bytecode.opcodes import row
from bcmend.cfg.dominance import EXIT, always_raises, immediate_post_dominators
from bcmend.cfg.graph import Graph, walk


@dataclass(frozen=True, slots=True)
class Branch:
    """A two-way jump on the truth of a value.

    The blocks of an arm are those that can be reached from its entry before the join, without
    exceptions. Those of the two arms overlap where a short-circuit condition or a loop shares them.
    """

    jump: int  # its index among the instructions
    taken: int  # the block that the jump goes to
    fallthrough: int  # the block after the jump; the entry of an empty arm is the join
    join: int  # the block where the arms meet, ``EXIT`` if only in the return or never
    taken_blocks: frozenset[int]
    fallthrough_blocks: frozenset[int]
    taken_raises: bool  # whether every path through the arm ends in a raise
    fallthrough_raises: bool


PostDominators = tuple[int | None, ...]


def branches(
    graph: Graph, post_dominators_of: Callable[[Graph], PostDominators] = immediate_post_dominators
) -> tuple[Branch, ...]:
    """Return every reachable branch on a truth value, in the order of their jumps."""
    instructions = graph.function.instructions
    jumping = [
        block.index
        for block in graph.blocks
        if block.index in graph.reachable and row(instructions[block.end - 1].op).tests_truth
    ]
    if not jumping:
        return ()
    post_dominators = post_dominators_of(graph)
    raising = always_raises(graph)
    return tuple(_branch(graph, block, post_dominators, raising) for block in jumping)


def _branch(
    graph: Graph, block: int, post_dominators: PostDominators, raising: frozenset[int]
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
