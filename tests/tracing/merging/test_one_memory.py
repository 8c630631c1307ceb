"""A result that is a view of another on both sides is made of what the other has become."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from bcmend.dynamo import fx_graph
from bcmend.dynamo.values import example_of
from bcmend.tracing.merging.merge import Pair
from bcmend.tracing.merging.one_memory import View, views_among, with_views
from bcmend.tracing.sites.refusal import Refusal
from tests.tracing.plain_trace import traced

X = torch.arange(6.0).view(2, 3)
Make = Callable[[Any, Any], Any]


def _found(
    one: Make, other: Make, *, by_cond: bool = False, x: Tensor = X
) -> tuple[dict[int, View], Any]:
    """Return the views among a tensor and what is made of it, on two sides."""
    seen: list[Any] = []

    def step(tx: Any, x: Any) -> Any:
        bases = [fx_graph.method(tx, "clone", x) for _ in range(2)]
        made = [make(tx, base) for make, base in zip((one, other), bases, strict=True)]
        views = views_among([Pair(*bases), Pair(*made)], by_cond=by_cond)
        results = with_views(tx, bases[:1] + ([] if views else made[:1]), views)
        seen.append([example_of(each) for each in results])
        return results[-1]

    found = traced(step, x)
    return seen[0], found


def _row(tx: Any, base: Any) -> Any:
    return fx_graph.method(tx, "select", base, 0, 1)


def _flat(tx: Any, base: Any) -> Any:
    return fx_graph.method(tx, "view", base, -1)


def _turned(tx: Any, base: Any) -> Any:
    return fx_graph.method(tx, "t", base)


def _detached(tx: Any, base: Any) -> Any:
    return fx_graph.method(tx, "detach", base)


def _copied(tx: Any, base: Any) -> Any:
    return fx_graph.method(tx, "clone", fx_graph.method(tx, "select", base, 0, 1))


def _other_row(tx: Any, base: Any) -> Any:
    return fx_graph.method(tx, "select", base, 0, 0)


def _shared(examples: Any) -> bool:
    one, other = examples
    return bool(one.untyped_storage()._cdata == other.untyped_storage()._cdata)


@pytest.mark.parametrize("make", [_row, _flat, _turned, _detached])
@pytest.mark.parametrize("gradients", [False, True])
def test_a_view_on_both_sides_is_a_view_of_what_was_merged(make: Make, gradients: bool) -> None:
    x = X.clone().requires_grad_(gradients)
    (base, made), found = _found(make, make, x=x)
    assert _shared((base, made))
    assert made.requires_grad is (gradients and make is not _detached)
    expected = {_row: x[1], _flat: x.view(-1), _turned: x.t(), _detached: x.detach()}[make]
    (result,) = found.run(x)
    assert torch.equal(result, expected) and result.stride() == expected.stride()


@pytest.mark.parametrize(("one", "other"), [(_row, _copied), (_row, _other_row), (_copied, _row)])
def test_what_lies_elsewhere_on_a_side_is_merged_by_itself(one: Make, other: Make) -> None:
    examples, _ = _found(one, other)
    assert not examples[1]._is_view() or one is _row


def _pairs_of(step: Callable[[Any, Any, Any], list[Pair]], *, by_cond: bool) -> dict[int, View]:
    found: list[dict[int, View]] = []

    def run(tx: Any, x: Any) -> Any:
        one, other = (fx_graph.method(tx, "clone", x) for _ in range(2))
        found.append(views_among(step(tx, one, other), by_cond=by_cond))
        return one

    traced(run, X)
    return found[0]


@pytest.mark.parametrize("by_cond", [False, True])
def test_one_that_only_one_side_has_is_made_anew_by_cond_alone(by_cond: bool) -> None:
    views = _pairs_of(
        lambda tx, one, other: [Pair(one, None), Pair(_row(tx, one), None)], by_cond=by_cond
    )
    assert {at: view.base for at, view in views.items()} == ({1: 0} if by_cond else {})


def test_a_view_that_stands_first_is_made_of_what_stands_last() -> None:
    views = _pairs_of(
        lambda tx, one, other: [
            Pair(_row(tx, one), _row(tx, other)),
            Pair(_flat(tx, one), _flat(tx, other)),
            Pair(one, other),
        ],
        by_cond=False,
    )
    (base,) = {view.base for view in views.values()}
    assert base in (1, 2) and len(views) == 2 and base not in views


def test_a_view_on_one_side_alone_is_none() -> None:
    views = _pairs_of(
        lambda tx, one, other: [Pair(one, other), Pair(_row(tx, one), _copied(tx, other))],
        by_cond=False,
    )
    assert views == {}


def test_another_form_in_memory_is_refused() -> None:
    def step(tx: Any, x: Any) -> Any:
        turned = fx_graph.method(tx, "clone", x)
        View(0, (1, 2), (3,), (1,), 0, is_detached=False).of(tx, turned)

    with pytest.raises(Refusal, match="another form"):
        traced(step, X)
