"""Dominators and post-dominators of the blocks of a graph.

Reads a ``Graph``; produces, for each block, the nearest block that every way to it (or from it to a
return) passes. The algorithm is that of Cooper, Harvey and Kennedy, "A Simple, Fast Dominance
Algorithm". Dominators count exception edges, since a handler and what follows it can be entered
from anywhere in its range. Post-dominators do not: where control goes unless something raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

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
    it. A block that cannot reach a return has none.
    """
    returning = _ending(graph, "return")
    if len(graph.blocks) == 1:
        return (EXIT if returning else None,)
    backward = [
        (target, source) for source, targets in enumerate(graph.successors) for target in targets
    ]
    backward.extend((EXIT, block) for block in returning)
    return _dominators(EXIT, backward, len(graph.blocks))


def _dominators(root: int, edges: Iterable[tuple[int, int]], count: int) -> tuple[int | None, ...]:
    predecessors: dict[int, list[int]] = {}
    successors: dict[int, list[int]] = {}
    for source, target in edges:
        successors.setdefault(source, []).append(target)
        predecessors.setdefault(target, []).append(source)
    order = _postorder(root, successors)
    number = {block: position for position, block in enumerate(order)}
    found = {root: root}
    changed = True
    while changed:
        changed = False
        for block in reversed(order[:-1]):
            nearest = _common(
                (each for each in predecessors[block] if each in found), found, number
            )
            if found.get(block) != nearest:
                found[block], changed = nearest, True
    del found[root]
    return tuple(map(found.get, range(count)))


def _common(blocks: Iterable[int], found: Mapping[int, int], number: Mapping[int, int]) -> int:
    """Return the nearest dominator that all of ``blocks``, of which there is one, have in common.

    ``number`` is the postorder: a dominator has a higher one than what it dominates.
    """
    nearest, *others = blocks
    for other in others:
        while nearest != other:
            if number[nearest] < number[other]:
                nearest = found[nearest]
            else:
                other = found[other]
    return nearest


def _postorder(root: int, successors: Mapping[int, Sequence[int]]) -> list[int]:
    """Return what can be reached from ``root``, each block after all that it leads to first."""
    order: list[int] = []
    seen = {root}
    pending = [(root, iter(successors.get(root, ())))]
    while pending:
        block, targets = pending[-1]
        for target in targets:
            if target not in seen:
                seen.add(target)
                pending.append((target, iter(successors.get(target, ()))))
                break
        else:
            order.append(block)
            pending.pop()
    return order


def _ending(graph: Graph, kind: str) -> frozenset[int]:
    instructions = graph.function.instructions
    return frozenset(
        block.index for block in graph.blocks if row(instructions[block.end - 1].op).ends == kind
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
