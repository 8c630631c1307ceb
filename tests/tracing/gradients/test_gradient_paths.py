"""Paths of gradients: what is simplified, and which are live, against all assignments."""

from __future__ import annotations

import itertools
import random

import pytest

from bcmend.tracing.gradients import gradient_paths
from bcmend.tracing.gradients.gradient_paths import RESULT, Edge, Paths, Routes


def _is_live(paths: Paths, start: int, values: tuple[bool, ...]) -> bool:
    """Return whether a path is live, by definition."""
    if start & RESULT:
        return True
    edges = [each for at, each in enumerate(paths.edges, 1) if start >> at & 1]
    return any(
        values[each.predicate] is each.side and _is_live(paths, each.onward, values)
        for each in edges
    )


def test_a_path_through_one_side() -> None:
    paths = Paths()
    one = paths.through(0, True, RESULT)
    routes, predicates = paths.routes([one])
    assert predicates == [0]
    assert routes.live((True,)) == (True,)
    assert routes.live((False,)) == (False,)


def test_nothing_leads_through_a_side_to_nothing() -> None:
    paths = Paths()
    assert paths.through(0, True, 0) == 0
    assert paths.edges == []


def test_both_sides_are_the_result() -> None:
    paths = Paths()
    both = paths.through(0, True, RESULT) | paths.through(0, False, RESULT)
    assert paths.simplified(both) == RESULT
    assert paths.through(1, True, both) == paths.through(1, True, RESULT)


def test_a_gate_and_the_select_behind_it_are_one_question() -> None:
    paths = Paths()
    taken, untaken = (paths.through(0, side, RESULT) for side in (True, False))
    gates = paths.through(0, True, taken) | paths.through(0, False, untaken)
    assert paths.simplified(gates) == RESULT
    crossed = paths.through(0, True, untaken) | paths.through(0, False, taken)
    assert paths.simplified(crossed) != RESULT


def test_only_what_decides_is_asked_for() -> None:
    paths = Paths()
    paths.through(0, True, RESULT)
    behind = paths.through(3, False, RESULT)
    start = paths.through(1, True, behind)
    routes, predicates = paths.routes([RESULT, start])
    assert predicates == [1, 3]
    assert routes.live((True, False)) == (True, True)
    assert routes.live((True, True)) == (True, False)


def test_predicates_in_another_order() -> None:
    routes = Routes((Edge(0, True, RESULT), Edge(1, False, 0b10)), (0b100,))
    other = routes.in_order([1, 0])
    for one, two in itertools.product((True, False), repeat=2):
        assert other.live((two, one)) == routes.live((one, two))


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs(seed: int) -> None:
    drawn, paths = random.Random(seed), Paths()
    sets = [RESULT, 0]
    for _ in range(12):
        onward = drawn.choice(sets) | drawn.choice(sets)
        sets.append(paths.through(drawn.randrange(4), drawn.random() < 0.5, onward))
    starts = [drawn.choice(sets) | drawn.choice(sets) for _ in range(5)]
    assignments = list(itertools.product((True, False), repeat=4))
    for start in starts:
        live = [_is_live(paths, start, values) for values in assignments]
        assert (paths.simplified(start) == RESULT) is all(live)
    routes, predicates = paths.routes(starts)
    for values in assignments:
        given = tuple(values[each] for each in predicates)
        assert routes.live(given) == tuple(_is_live(paths, each, values) for each in starts)


def test_a_long_chain_is_decided_quickly() -> None:
    paths, behind = Paths(), RESULT
    for predicate in range(300):
        taken, untaken = (paths.through(predicate, side, behind) for side in (True, False))
        behind = paths.simplified(taken | untaken)
    assert behind == RESULT
    assert len(paths.edges) == 600


def test_what_is_not_decided_counts_as_not_always_live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_paths, "PREDICATES_AT_MOST", 1)
    paths = Paths()
    one = paths.through(0, True, RESULT) | paths.through(1, True, RESULT)
    both = paths.through(2, True, one) | paths.through(2, False, one)
    assert paths.simplified(both) == both


def _always_live(predicates: int) -> tuple[Paths, int]:
    """Return paths through one side of each of some predicates, and one if they take the other."""
    paths, found, rest = Paths(), 0, RESULT
    for predicate in range(predicates):
        found |= paths.through(predicate, True, RESULT)
        rest = paths.through(predicate, False, rest)
    return paths, found | rest


@pytest.mark.parametrize("more", [0, 1])
def test_so_many_predicates_are_looked_at_and_no_more(more: int) -> None:
    paths, start = _always_live(gradient_paths.PREDICATES_AT_MOST + more)
    assert paths.simplified(start) == (start if more else RESULT)


def _pigeons(holes: int) -> tuple[Paths, int]:
    """Return paths of which one is live, for one pigeon more than there are holes."""
    paths, found = Paths(), 0
    pigeons = range(holes + 1)
    for pigeon in pigeons:  # it is in no hole
        outside = RESULT
        for hole in range(holes):
            outside = paths.through(pigeon * holes + hole, False, outside)
        found |= outside
    for hole, (one, other) in itertools.product(range(holes), itertools.combinations(pigeons, 2)):
        inside = paths.through(other * holes + hole, True, RESULT)  # two are in one hole
        found |= paths.through(one * holes + hole, True, inside)
    return paths, found


def test_so_many_assignments_are_looked_at_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    paths, start = _pigeons(3)
    assert paths.simplified(start) == RESULT
    needed = len(paths._decided)
    monkeypatch.setattr(gradient_paths, "ASSIGNMENTS_AT_MOST", needed)
    paths, start = _pigeons(3)
    assert paths.simplified(start) == RESULT
    monkeypatch.setattr(gradient_paths, "ASSIGNMENTS_AT_MOST", needed // 2)
    paths, start = _pigeons(3)
    assert paths.simplified(start) == start
    routes, asked = paths.routes([start])
    for values in itertools.product((True, False), repeat=len(asked)):
        assert routes.live(values) == (True,)


def test_answers_are_kept_up_to_a_bound() -> None:
    edges = tuple(Edge(number, True, RESULT) for number in range(8))
    routes = Routes(edges, (0b10,))
    for values in itertools.product((True, False), repeat=8):
        assert routes.live(values) == (values[0],)
    assert len(routes._known) <= gradient_paths.KEPT_AT_MOST
