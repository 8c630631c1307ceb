"""Dominators and post-dominators of the blocks of a graph.

Reads a ``Graph``; produces, for each block, the nearest block that every way to it (or from it to a
return) passes. ``networkx`` computes them, by Cooper, Harvey and Kennedy, "A Simple, Fast Dominance
Algorithm". Dominators count exception edges, since a handler and what follows it can be entered
from anywhere in its range. Post-dominators do not: where control goes unless something raises.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import networkx

from bcmend.cfg.graph import Graph, walk
from bcmend.codeobj.opcodes import row

#: Stands for the function's return, which every returning block leads to.
EXIT: Final = -1


def immediate_dominators(graph: Graph) -> tuple[int | None, ...]:
    """Return each block's immediate dominator; ``None`` for the entry and unreachable blocks."""
    if len(graph.blocks) == 1:
        return (None,)
    return _dominators(0, ((edge.source, edge.target) for edge in graph.edges), len(graph.blocks))


def immediate_post_dominators(graph: Graph) -> tuple[int | None, ...]:
    """Return each block's immediate post-dominator, which is ``EXIT`` where there is no block.

    Ways that end in a raise do not count, so ``if bad: raise X`` is post-dominated by what follows
    it. A generator that never returns may end wherever it yields: nobody has to resume it. Any
    other block that cannot reach a return has none.
    """
    returning = _ending(graph, "return")
    returning |= _suspending(graph) - _leading_to(graph, returning)
    if len(graph.blocks) == 1:
        return (EXIT if returning else None,)
    backward = [
        (target, source) for source, targets in enumerate(graph.successors) for target in targets
    ]
    backward.extend((EXIT, block) for block in returning)
    return _dominators(EXIT, backward, len(graph.blocks))


def _dominators(root: int, edges: Iterable[tuple[int, int]], count: int) -> tuple[int | None, ...]:
    digraph = networkx.DiGraph()
    digraph.add_node(root)
    digraph.add_edges_from(edges)
    found = networkx.immediate_dominators(digraph, root)
    # Versions of networkx differ in what they say of the root.
    return tuple(None if block == root else found.get(block) for block in range(count))


def _ending(graph: Graph, kind: str) -> frozenset[int]:
    instructions = graph.function.instructions
    return frozenset(
        block.index for block in graph.blocks if row(instructions[block.end - 1].op).ends == kind
    )


def _suspending(graph: Graph) -> frozenset[int]:
    instructions = graph.function.instructions
    return frozenset(
        block.index for block in graph.blocks if row(instructions[block.end - 1].op).suspends
    )


def always_raises(graph: Graph) -> frozenset[int]:
    """Return the blocks from which every way that ends, ends in a raise.

    A raise counts as an end even where a handler of the same function catches it.
    """
    raising = _ending(graph, "raise")
    if not raising:
        return frozenset()
    return _leading_to(graph, raising) - _leading_to(graph, _ending(graph, "return"))


def _leading_to(graph: Graph, ends: frozenset[int]) -> frozenset[int]:
    return frozenset().union(*(walk(end, graph.predecessors) for end in ends))
