"""Results that share memory on one side alone are found, and watched to the end of the trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest import mock

import pytest
import torch

from bcmend.dynamo import fx_graph
from bcmend.dynamo.values import example_of
from bcmend.tracing.effects import sharing, watches
from bcmend.tracing.effects.operator_runs import storage_of
from bcmend.tracing.lowering import shared_results
from bcmend.tracing.merging.merge import Pair
from bcmend.tracing.merging.one_memory import views_among
from bcmend.tracing.search.assumptions import Claim, Finding, Subject
from tests.tracing.plain_trace import traced

X = torch.ones(4)


def _unlike(make: Any, *, by_cond: bool = False) -> list[tuple[int, int]]:
    """Return what is found among the pairs that `make(tx, one, other, third)` returns."""
    found: list[list[tuple[int, int]]] = []

    def step(tx: Any, x: Any) -> Any:
        pairs = make(tx, *(fx_graph.method(tx, "clone", x) for _ in range(3)))
        views = views_among(pairs, by_cond=by_cond)
        found.append(shared_results.unlike_on_the_sides(tx, pairs, views, by_cond=by_cond))
        return x

    traced(step, X)
    return found[0]


def _half(tx: Any, value: Any, at: int) -> Any:
    return fx_graph.method(tx, "narrow", value, 0, at, 2)


def test_one_object_on_one_side_and_two_on_the_other() -> None:
    assert _unlike(lambda tx, a, b, c: [Pair(a, b), Pair(a, c)]) == [(0, 1)]


def test_a_view_on_one_side() -> None:
    def pairs(tx: Any, a: Any, b: Any, c: Any) -> Sequence[Pair]:
        return [Pair(a, b), Pair(_half(tx, a, 1), _half(tx, c, 1))]

    assert _unlike(pairs) == [(0, 1)]


def test_a_view_on_both_sides_is_made_of_the_other() -> None:
    def pairs(tx: Any, a: Any, b: Any, c: Any) -> Sequence[Pair]:
        return [Pair(a, b), Pair(_half(tx, a, 1), _half(tx, b, 1))]

    assert _unlike(pairs) == []


def test_halves_of_one_tensor_share_nothing() -> None:
    def pairs(tx: Any, a: Any, b: Any, c: Any) -> Sequence[Pair]:
        return [Pair(_half(tx, a, 0), b), Pair(_half(tx, a, 2), c)]

    assert _unlike(pairs) == []


@pytest.mark.parametrize("by_cond", [False, True])
def test_what_one_side_has_is_copied_by_cond_alone(by_cond: bool) -> None:
    def pairs(tx: Any, a: Any, b: Any, c: Any) -> Sequence[Pair]:
        return [Pair(_half(tx, a, 0), None), Pair(_half(tx, a, 1), None), Pair(None, b)]

    assert _unlike(pairs, by_cond=by_cond) == ([(0, 1)] if by_cond else [])


def test_what_an_inner_branch_has_made_of_one_tensor() -> None:
    def pairs(tx: Any, a: Any, b: Any, c: Any) -> Sequence[Pair]:
        sharing.relate(tx, example_of(a), example_of(b))
        return [Pair(a, c), Pair(b, fx_graph.method(tx, "clone", c))]

    assert _unlike(pairs) == [(0, 1)]


def test_the_tensors_of_both_sides_are_kept_apart() -> None:
    seen: list[Any] = []

    def step(tx: Any, x: Any) -> Any:
        a, b, c, d = (fx_graph.method(tx, "clone", x) for _ in range(4))
        found = shared_results.unlike_tensors(tx, [Pair(a, b), Pair(a, c), Pair(d, x)])
        seen.append((found, frozenset(id(example_of(each)) for each in (a, b, c))))
        return x

    traced(step, X)
    assert seen[0][0] == seen[0][1]


def test_both_are_watched_for_changes() -> None:
    def step(tx: Any, x: Any) -> Any:
        a, b = (fx_graph.method(tx, "clone", x) for _ in range(2))
        with mock.patch.object(watches, "add") as add:
            pairs = [Pair(a, b), Pair(b, a)]
            shared_results.watch(tx, [(0, 1)], pairs, [a, b], Finding(Claim.NEW, Subject()))
        assert [call.args[1] for call in add.call_args_list] == [example_of(a), example_of(b)]
        assert sharing.shares(tx, example_of(a), example_of(b))
        return x

    traced(step, X)


@pytest.mark.parametrize("both", [False, True])
def test_two_that_leave_the_graph_are_given_up(both: bool) -> None:
    subject = Subject()
    finding = Finding(Claim.NEW, subject)

    def step(tx: Any, x: Any) -> Any:
        a, b = (fx_graph.method(tx, "clone", x) for _ in range(2))
        pair = example_of(a), example_of(b)
        shared_results.relate(tx, [pair], finding)
        # Both are what the frame returns, or one is only read.
        made = fx_graph.function(tx, torch.add, a, b)
        tx.output.root_tx.stack.extend([a, b] if both else [a, made])
        asked = shared_results.leaving(tx)
        del tx.output.root_tx.stack[-2:]
        assert (storage_of(example_of(b)) in asked) is both
        assert storage_of(example_of(a)) in asked
        return made

    traced(step, X)
    assert subject.holds(Claim.NEW)  # at the end of the trace neither was left
