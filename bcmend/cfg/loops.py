"""Natural loops: what control goes round in (Aho, Lam, Sethi and Ullman, "Compilers", 9.6).

``networkx`` computes the dominators.
"""

from __future__ import annotations

from dataclasses import dataclass

import networkx

from bcmend.cfg.graph import Graph, walk


@dataclass(frozen=True, slots=True)
class Loop:
    """All back edges to one block that dominates where they come from, and what they go round."""

    header: int
    blocks: frozenset[int]


def loops_around(graph: Graph, block: int) -> list[Loop]:
    """Return the loops that a block is part of, innermost first.

    A handler of exceptions follows all blocks that it is a handler of.
    """
    edges = [(each, after) for each in graph.reachable for after in graph.leading_to[each]]
    directed = networkx.DiGraph(edges)
    directed.add_node(0)
    parents = networkx.immediate_dominators(directed, 0)
    before: list[list[int]] = [[] for _ in graph.blocks]
    for source, target in edges:
        before[target].append(source)
    found: dict[int, frozenset[int]] = {}
    for source, header in edges:
        if _dominates(parents, header, source):
            body = walk(source, before, header) | {header}
            found[header] = found.get(header, frozenset()) | body
    loops = [Loop(header, blocks) for header, blocks in found.items() if block in blocks]
    return sorted(loops, key=lambda each: len(each.blocks))


def _dominates(parents: dict[int, int | None], block: int, other: int) -> bool:
    """Return whether every path to ``other`` goes through ``block``."""
    while other != block:
        parent = parents.get(other)
        if parent is None or parent == other:
            return False
        other = parent
    return True
