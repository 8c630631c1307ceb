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

#: Of sets of paths with more predicates it is not decided whether one of them is always live. Each
#: takes two frames of Python's stack, which overflows at 450; one weight in 64 branches takes 7
#: ms.
PREDICATES_AT_MOST: Final = 64
#: So many assignments are looked at for all sets of a graph together, which take 0.8 s. A chain of
#: branches needs one for each; 42 predicates that say that seven pigeons do not fit into six holes
#: need 10,500, and 56 of eight pigeons 50,000 (2.2 s). What is not decided is asked for at run
#: time.
ASSIGNMENTS_AT_MOST: Final = 20_000
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
    _supports: list[int] = field(default_factory=list)
    _simple: dict[int, int] = field(default_factory=dict)
    _decided: dict[tuple[int, int, int], bool] = field(default_factory=dict)

    def through(self, predicate: int, side: bool, onward: int) -> int:
        """Return the paths that lead through one side of a branch to ``onward``."""
        onward = self.simplified(onward)
        if not onward:
            return 0
        edge = Edge(predicate, side, onward)
        if edge not in self._places:
            self._supports.append(1 << predicate | self._support(onward))
            self.edges.append(edge)
            self._places[edge] = len(self.edges)
        return 1 << self._places[edge]

    def simplified(self, paths: int) -> int:
        """Return ``RESULT`` for paths of which one is live whatever the predicates are."""
        if paths & RESULT or not paths & (paths - 1):
            return RESULT if paths & RESULT else paths
        if paths not in self._simple:
            self._simple[paths] = RESULT if self._is_always_live(paths, 0, 0) else paths
        return self._simple[paths]

    def _is_always_live(self, paths: int, known: int, values: int) -> bool:
        """Return whether a path is live for all values of the predicates that are not ``known``."""
        paths = self._under(paths, known, values)
        if paths & RESULT or not paths:
            return bool(paths)
        support = self._support(paths)
        known &= support
        values &= known
        key = paths, known, values
        if key not in self._decided:
            if len(self._decided) > ASSIGNMENTS_AT_MOST or support.bit_count() > PREDICATES_AT_MOST:
                return False
            one = 1 << self.edges[paths.bit_length() - 2].predicate
            self._decided[key] = all(
                self._is_always_live(paths, known | one, value) for value in (values, values | one)
            )
        return self._decided[key]

    def _under(self, paths: int, known: int, values: int) -> int:
        """Return the paths that are left where some predicates are known."""
        left = 0
        while paths > RESULT:
            place = paths.bit_length() - 1
            paths ^= 1 << place
            edge = self.edges[place - 1]
            predicate = 1 << edge.predicate
            if not known & predicate:
                left |= 1 << place
            elif bool(values & predicate) is edge.side:
                paths |= edge.onward
        return left | paths

    def _support(self, paths: int) -> int:
        found = 0
        for place in _edges_in(paths):
            found |= self._supports[place - 1]
        return found

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
        kept = sorted(_edges_in(needed))
        predicates = sorted({self.edges[place - 1].predicate for place in kept})
        places = {RESULT.bit_length() - 1: 0, **{old: new for new, old in enumerate(kept, 1)}}
        numbers = {old: new for new, old in enumerate(predicates)}

        def moved(paths: int) -> int:
            return sum(1 << new for old, new in places.items() if paths >> old & 1)

        old_edges = [self.edges[place - 1] for place in kept]
        edges = tuple(Edge(numbers[e.predicate], e.side, moved(e.onward)) for e in old_edges)
        return Routes(edges, tuple(map(moved, starts))), predicates


def _edges_in(paths: int) -> Iterator[int]:
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
