"""Paths of gradients: what is simplified, and which are live, against all assignments."""

from __future__ import annotations

import itertools
import random

import pytest

from bcmend.tracing.gradients.gradient_paths import KEPT_AT_MOST, RESULT, Edge, Paths, Routes


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
    assert paths.through(0, True, untaken) == paths.through(0, False, taken) == 0


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
        simplified = paths.simplified(start)
        assert [_is_live(paths, simplified, values) for values in assignments] == live
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


def test_both_sides_of_a_branch_lead_to_one_path() -> None:
    paths = Paths()
    one = paths.through(0, True, RESULT) | paths.through(1, True, RESULT)
    both = paths.through(2, True, one) | paths.through(2, False, one)
    assert paths.simplified(both) == one


def test_what_takes_more_to_decide_is_asked_for() -> None:
    paths = Paths()
    start = paths.through(0, True, RESULT)
    start |= paths.through(1, False, paths.through(0, False, RESULT))
    start |= paths.through(1, True, RESULT)
    assert paths.simplified(start) == start
    routes, asked = paths.routes([start])
    for values in itertools.product((True, False), repeat=len(asked)):
        assert routes.live(values) == (True,)


def test_answers_are_kept_up_to_a_bound() -> None:
    edges = tuple(Edge(number, True, RESULT) for number in range(8))
    routes = Routes(edges, (0b10,))
    for values in itertools.product((True, False), repeat=8):
        assert routes.live(values) == (values[0],)
    assert len(routes._known) <= KEPT_AT_MOST
