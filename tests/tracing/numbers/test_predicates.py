"""Conditions as 0-d boolean tensors, on every truth that a condition can have."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch

from bcmend.dynamo import compat, fx_graph
from bcmend.dynamo.values import example_of
from bcmend.tracing.numbers import predicates
from bcmend.tracing.programs import deciding_draws
from tests.tracing.plain_trace import traced

YES, NO = torch.tensor(True), torch.tensor(False)


@pytest.mark.parametrize(
    ("value", "truth"),
    [
        (torch.tensor([[2.0]]), True),
        (torch.tensor([0.0]), False),
        (torch.tensor(-0.0), False),
        (torch.tensor(math.nan), True),
        (torch.tensor(256), True),
        (YES, True),
    ],
)
def test_a_tensor_of_one_element_is_as_true_as_in_python(value: torch.Tensor, truth: bool) -> None:
    def step(tx: Any, x: Any) -> Any:
        predicate = predicates.as_predicate(tx, x)
        assert example_of(predicate).shape == () and example_of(predicate).dtype is torch.bool
        return compat.TupleVariable([predicate, x])

    assert bool(value) is truth
    assert traced(step, value).result[0].item() is truth


@pytest.mark.parametrize("number", [0, 3])
def test_a_number_is_as_true_as_in_python(number: int) -> None:
    def step(tx: Any, x: Any) -> Any:
        taken = fx_graph.function(tx, torch.add, x, 1).call_method(tx, "item", [], {})
        assert isinstance(taken, compat.SymNodeVariable)
        return predicates.as_predicate(tx, taken)

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        assert traced(step, torch.tensor(number - 1)).result.item() is bool(number)


@pytest.mark.parametrize(
    ("join", "expected"),
    [
        (predicates.both, lambda one, other: one and other),
        (predicates.either, lambda one, other: one or other),
        (
            lambda tx, one, other: predicates.chosen(
                tx, one, other.as_proxy(), predicates.negated(tx, other).as_proxy()
            ),
            lambda one, other: other if one else not other,
        ),
    ],
)
def test_joined_conditions(join: Any, expected: Callable[[bool, bool], bool]) -> None:
    def step(tx: Any, one: Any, other: Any) -> Any:
        return compat.TupleVariable([join(tx, one, other), one, other])

    found = traced(step, YES, NO)
    for one, other in product((True, False), repeat=2):
        result = found.run(torch.tensor(one), torch.tensor(other))
        assert result[0].item() is expected(one, other)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_condition_that_is_chosen_by_itself_is_joined(is_first: bool) -> None:
    """What ``one or other`` and ``one and other`` are; a number in place of a truth is selected."""

    def step(tx: Any, one: Any, other: Any, number: Any) -> Any:
        def chosen(beside: Any) -> Any:
            sides = (one, beside) if is_first else (beside, one)
            return predicates.chosen(tx, one, *(each.as_proxy() for each in sides))

        return compat.TupleVariable([chosen(other), chosen(number), one, other, number])

    number = torch.tensor(0.5)
    found = traced(step, YES, NO, number)
    assert found.targets == [torch.logical_or if is_first else torch.logical_and, torch.where]
    for one, other in product((True, False), repeat=2):
        truth, result, *_ = found.run(torch.tensor(one), torch.tensor(other), number)
        assert truth.item() is ((one or other) if is_first else (one and other))
        assert result.item() == (one if one is is_first else 0.5)


def test_random_operators_behind_a_condition_stay_in_the_graph() -> None:
    def step(tx: Any, x: Any) -> Any:
        drawn = fx_graph.function(tx, torch.rand, 1)
        deciding_draws.keep(tx, predicates.as_predicate(tx, drawn))
        return x

    found = traced(step, torch.ones(2))
    assert found.targets[-1] is compat.ASSERT_ASYNC


def test_a_condition_without_random_operators_is_not_kept() -> None:
    def step(tx: Any, x: Any) -> Any:
        deciding_draws.keep(tx, predicates.as_predicate(tx, x))
        return x

    assert compat.ASSERT_ASYNC not in traced(step, torch.ones(1)).targets
