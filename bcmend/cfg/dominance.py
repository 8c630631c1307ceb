"""Post-dominators of the blocks of a graph: where control goes unless something raises.

``networkx`` computes them, by Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm".
"""

from __future__ import annotations

from typing import Final

import networkx

from bcmend.bytecode.opcodes import Row, row
from bcmend.cfg.graph import Block, Graph, walk

#: Stands for the function's return, which every returning block leads to.
EXIT: Final = -1


def immediate_post_dominators(graph: Graph) -> tuple[int | None, ...]:
    """Return each block's immediate post-dominator, which is ``EXIT`` where there is no block.

    Paths that end in a raise do not count, so ``if bad: raise X`` is post-dominated by what follows
    it. A generator that never returns may end wherever it yields, since it need not be resumed. Any
    other block that cannot reach a return has none.
    """
    returning = _ending(graph, "return")
    suspending = {block.index for block in graph.blocks if _last_row(graph, block).suspends}
    returning |= suspending - _leading_to(graph, returning)
    edges = [(EXIT, block) for block in returning]
    for target, sources in enumerate(graph.predecessors):
        edges += [(target, source) for source in sources]
    backward = networkx.DiGraph(edges)
    backward.add_node(EXIT)
    found = networkx.immediate_dominators(backward, EXIT)
    return tuple(found.get(block.index) for block in graph.blocks)


def _last_row(graph: Graph, block: Block) -> Row:
    return row(graph.function.instructions[block.end - 1].op)


def _ending(graph: Graph, kind: str) -> frozenset[int]:
    ending = (block.index for block in graph.blocks if _last_row(graph, block).ends == kind)
    return frozenset(ending)


def always_raises(graph: Graph) -> frozenset[int]:
    """Return the blocks from which every path that ends, ends in a raise.

    A raise counts as an end even where a handler of the same function catches it.
    """
    raising = _ending(graph, "raise")
    if not raising:
        return frozenset()
    return _leading_to(graph, raising) - _leading_to(graph, _ending(graph, "return"))


def _leading_to(graph: Graph, ends: frozenset[int]) -> frozenset[int]:
    return frozenset().union(*(walk(end, graph.predecessors) for end in ends))
