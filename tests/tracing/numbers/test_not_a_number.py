"""Floating numbers out of tensors that are NaN or infinite, in conditions behind each other.

With NaN neither of ``x < 1`` and ``x >= 1`` holds, so that what a condition is not says little.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.equivalence import Call, assert_equivalent, call

_VALUES = [
    [1.0, 2.0],
    [0.5, 0.25],
    [1.0, 0.5],
    [0.0, 0.0],
    [float("nan"), 0.0],
    [float("inf"), 0.0],
    [-1.0, -1.0],
]


def _calls() -> list[Call]:
    return [call(torch.tensor(each)) for each in _VALUES]


def _neither_below_nor_above(x: Tensor) -> Any:
    total = x.sum().item()
    if total < 1:
        return x - 1, 0
    if total >= 1:
        return x + 1, 1
    return x + 2, 2


def _not_above(x: Tensor) -> Any:
    total = x.sum().item()
    if not total > 1:
        if total <= 1:
            return x - 1, total
        return x + 5, total
    return x * 2, total


def _by_a_truth(x: Tensor) -> Any:
    total, mean = x.sum().item(), x.mean().item()
    is_less = total < mean
    if not is_less and total >= mean:
        return x - 1
    return x + 1 if is_less else x + 2


def _behind_a_check(x: Tensor) -> Any:
    total = x.sum().item()
    if total > 2:
        raise ValueError("large")
    if total <= 2:
        return x * 2
    return x + 1


def _between_bounds(x: Tensor) -> Any:
    least, greatest = 0.0, 1.0
    total = x.sum().item()
    if least <= total <= greatest:
        return x - 1
    if total > greatest:
        return x + 1
    return x + 2 if total < least else x + 3


def _in_a_range_of_integers(x: Tensor) -> Any:
    share = x.amax().item()
    if not 0 < share <= 1:
        raise ValueError(f"{share} is no share")
    return x * share if share < 1 else x + 1


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize(
    "backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "program",
    [
        _in_a_range_of_integers,
        _neither_below_nor_above,
        _not_above,
        _by_a_truth,
        _behind_a_check,
        _between_bounds,
    ],
)
def test_no_comparison_holds_with_nan(
    program: Callable[..., Any], backend: str, fullgraph: bool
) -> None:
    assert_equivalent(lambda: program, _calls, backend=backend, fullgraph=fullgraph)


def _converges(x: Tensor) -> Any:
    before, rises = float("inf"), 0
    for _ in range(3):
        loss = x.abs().mean().item()
        if abs(before - loss) < 1e-3:
            break
        if loss > before:
            rises += 1
        before = loss
        x = x * -1.5
    return x, rises


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize(
    "backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
)
def test_a_number_compared_with_infinity_before_others(backend: str, fullgraph: bool) -> None:
    """A condition on the distance to infinity says nothing to torch about other numbers."""
    assert_equivalent(lambda: _converges, _calls, backend=backend, fullgraph=fullgraph, graphs=None)
