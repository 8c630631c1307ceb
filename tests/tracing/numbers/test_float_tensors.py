"""Floating numbers as tensors: each bit is that of Python's arithmetic."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

from bcmend.dynamo import compat, fx_graph
from bcmend.dynamo.values import example_of
from bcmend.tracing.numbers import float_tensors, scalars
from tests.tracing.plain_trace import traced

Compute = Callable[[Callable[..., Any], Any], Any]


def _in_the_graph(tensor: torch.Tensor, compute: Compute) -> tuple[float, list[Any]]:
    """Compute with the number in a tensor; return the result's tensor, and what the graph calls."""

    def step(tx: Any, x: Any) -> Any:
        def apply(function: Any, *arguments: Any) -> Any:
            given = tuple(
                each.as_proxy() if hasattr(each, "as_proxy") else each for each in arguments
            )
            proxy = tx.output.create_proxy("call_function", function, given, {})
            return compat.wrap_fx_proxy(tx, proxy)

        number = scalars.take(tx, fx_graph.method(tx, "clone", x))
        found = float_tensors.as_tensor(tx, compute(apply, number).as_proxy())
        assert example_of(found).dtype is torch.float64 and example_of(found).shape == ()
        return fx_graph.function(tx, torch.add, found, 0)

    traced_call = traced(step, tensor)
    return traced_call.result.item(), traced_call.targets


@pytest.mark.parametrize("value", [0.1, -3.7, 1e-30])
@pytest.mark.parametrize(
    "compute",
    [
        lambda apply, n: n,
        lambda apply, n: apply(operator.mul, apply(operator.add, n, 0.3), 7),
        lambda apply, n: apply(operator.neg, apply(operator.sub, 1.7, n)),
        lambda apply, n: apply(operator.truediv, n, 3),
        lambda apply, n: apply(operator.truediv, 1.0, apply(operator.add, n, 2.0)),
        lambda apply, n: apply(operator.truediv, 7.3, apply(operator.mul, n, 5)),
    ],
)
def test_arithmetic_is_done_again_on_the_tensor(compute: Compute, value: float) -> None:
    tensor = torch.tensor(value)
    found, _ = _in_the_graph(tensor, compute)
    assert found == compute(lambda function, *given: function(*given), tensor.item())


@pytest.mark.parametrize("value", [3, -7, 2**60 + 1])
@pytest.mark.parametrize(
    "compute",
    [
        lambda apply, n: apply(operator.mul, apply(operator.add, n, 1), 0.1),
        lambda apply, n: apply(operator.truediv, apply(operator.sub, n, 1), 0.3),
        lambda apply, n: apply(operator.truediv, 7, n),
        lambda apply, n: apply(operator.truediv, -5.1, n),
    ],
)
def test_integers_that_were_computed_with_are_doubles(compute: Compute, value: int) -> None:
    found, targets = _in_the_graph(torch.tensor(value), compute)
    assert found == compute(lambda function, *arguments: function(*arguments), value)
    assert torch.Tensor.to in targets


def test_arithmetic_that_may_round_otherwise_is_left_to_python() -> None:
    found, targets = _in_the_graph(torch.tensor(0.5), lambda apply, n: apply(operator.pow, n, 0.3))
    assert found == 0.5**0.3
    assert torch.scalar_tensor in targets and torch.pow not in targets


def test_a_quotient_of_large_integers_is_rounded_once() -> None:
    large, divisor = torch.tensor(3 * (2**53 + 1)), 3
    assert large.item() / divisor != float(large.item()) / divisor, "rounded twice, as a double"
    found, _ = _in_the_graph(large, lambda apply, n: apply(operator.truediv, n, divisor))
    assert found == large.item() / divisor


def test_a_truth_becomes_a_boolean_tensor() -> None:
    def step(tx: Any, x: Any) -> Any:
        number = scalars.take(tx, fx_graph.method(tx, "clone", x))
        assert isinstance(number, compat.SymNodeVariable)
        found = float_tensors.as_tensor(tx, number.as_proxy())
        assert example_of(found).dtype is torch.bool
        return found

    assert traced(step, torch.tensor(True)).result.item() is True
