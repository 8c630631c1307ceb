"""Paths along which gradients flow back through branches, and which of them are live.

A set of paths is an integer. Bit 0 is the result of the graph. Each other bit is an edge: it is
live if its predicate has the value of its side and one of the paths behind it is live.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

#: The set of paths from what is the result itself.
RESULT: Final = 1

#: Answers that are kept for the next call.
KEPT_AT_MOST: Final = 64


@dataclass(frozen=True, slots=True)
class Edge:
    """A step that a gradient takes back on one side of a branch; ``onward`` are paths behind it."""

    predicate: int
    side: bool
    onward: int


@dataclass(slots=True, eq=False)
class Paths:
    """All edges of a graph; those behind an edge come before it."""

    edges: list[Edge] = field(default_factory=list)
    _places: dict[Edge, int] = field(default_factory=dict)

    def through(self, predicate: int, side: bool, onward: int) -> int:
        """Return the paths that lead through one side of a branch to ``onward``."""
        onward = self.simplified(self._behind(predicate, side, onward))
        if not onward:
            return 0
        edge = Edge(predicate, side, onward)
        if edge not in self._places:
            self.edges.append(edge)
            self._places[edge] = len(self.edges)
        return 1 << self._places[edge]

    def simplified(self, paths: int) -> int:
        """Return paths that are live for the same predicates: both sides of a branch are one path.

        What takes more than that to decide is asked for at run time.
        """
        looked_at = 0
        while not paths & RESULT and (left := paths & ~looked_at):
            place = left.bit_length() - 1
            looked_at |= 1 << place
            edge = self.edges[place - 1]
            other = self._places.get(Edge(edge.predicate, not edge.side, edge.onward), 0)
            if other and paths >> other & 1:
                paths = paths ^ (1 << place) ^ (1 << other) | edge.onward
        return RESULT if paths & RESULT else paths

    def _behind(self, predicate: int, side: bool, paths: int) -> int:
        """Return the paths that are left where a predicate is known to have the value ``side``."""
        left = 0
        while paths > RESULT:
            place = paths.bit_length() - 1
            paths ^= 1 << place
            edge = self.edges[place - 1]
            if edge.predicate != predicate:
                left |= 1 << place
            elif edge.side is side:
                paths |= edge.onward
        return left | paths

    def routes(self, starts: Sequence[int]) -> tuple[Routes, list[int]]:
        """Return what tells whether ``starts`` are live, and the predicates that it asks for."""
        needed, waiting = 0, 0
        for start in starts:
            waiting |= start
        while waiting > RESULT:
            place = waiting.bit_length() - 1
            waiting ^= 1 << place
            needed |= 1 << place
            waiting |= self.edges[place - 1].onward
        kept = sorted(places_in(needed))
        predicates = sorted({self.edges[place - 1].predicate for place in kept})
        places = {RESULT.bit_length() - 1: 0, **{old: new for new, old in enumerate(kept, 1)}}
        numbers = {old: new for new, old in enumerate(predicates)}

        def moved(paths: int) -> int:
            return sum(1 << new for old, new in places.items() if paths >> old & 1)

        old_edges = [self.edges[place - 1] for place in kept]
        edges = tuple(Edge(numbers[e.predicate], e.side, moved(e.onward)) for e in old_edges)
        return Routes(edges, tuple(map(moved, starts))), predicates


def places_in(paths: int) -> Iterator[int]:
    """Yield the places of the edges in a set of paths, the last one first."""
    while paths > RESULT:
        place = paths.bit_length() - 1
        paths ^= 1 << place
        yield place


@dataclass(frozen=True, slots=True, eq=False)
class Routes:
    """Tells which of some inputs, each with a set of paths, get a gradient."""

    edges: tuple[Edge, ...]
    starts: tuple[int, ...]
    _known: dict[tuple[bool, ...], tuple[bool, ...]] = field(default_factory=dict)

    def in_order(self, order: Sequence[int]) -> Routes:
        """Return the same for predicates that are given in another order."""
        numbers = {old: new for new, old in enumerate(order)}
        edges = (Edge(numbers[each.predicate], each.side, each.onward) for each in self.edges)
        return Routes(tuple(edges), self.starts)

    def live(self, values: tuple[bool, ...]) -> tuple[bool, ...]:
        """Return for each input whether a path from it is live; ``values`` are the predicates'."""
        found = self._known.get(values)
        if found is None:
            reached = RESULT
            for place, edge in enumerate(self.edges, 1):
                if values[edge.predicate] is edge.side and reached & edge.onward:
                    reached |= 1 << place
            found = tuple(bool(start & reached) for start in self.starts)
            if len(self._known) >= KEPT_AT_MOST:
                self._known.clear()
            self._known[values] = found
        return found
