"""Numbers that an arm computes from tensors are numbers after the branch, of the same value."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.equivalence import Call, assert_equivalent, call, fresh


def _inputs() -> list[Call]:
    return [
        call(torch.tensor([first, 1.0]), torch.tensor(count))
        for first in (2.0, -3.0)
        for count in (3, 0, 5)
    ]


def _integer(x: Tensor, count: Tensor) -> tuple[Tensor, int]:
    number = 3
    if x.sum() > 0:
        number = int(count) * 2 + 1
    return x * number, number


def _fraction(x: Tensor, count: Tensor) -> tuple[Tensor, float]:
    number = 0.5
    if x.sum() > 0:
        number = x.max().item() ** 2
    return x * number, number


def _truth(x: Tensor, count: Tensor) -> tuple[Tensor, bool]:
    flag = False
    if x.sum() > 0:
        flag = int(count) * 3 > int(count) + 4
    if flag:
        x = x + 1
    return x, flag


@pytest.mark.parametrize("program", [_integer, _fraction, _truth])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("training", [False, True])
def test_a_number_of_one_arm(program: Any, backend: str, training: bool) -> None:
    assert_equivalent(
        lambda: fresh(program), _inputs, backend=backend, training=training, may_copy=True
    )


def _enters_an_arm(x: Tensor, count: Tensor) -> tuple[Tensor, float]:
    number = x.sum().item()
    third = number / 3
    if number > 0.2:
        x = (x * third) / number
    return x, third


def _enters_an_inner_arm(x: Tensor, count: Tensor) -> tuple[Tensor, float]:
    number = x.sum().item()
    scale = number * 3
    if x.max() > 0.2:
        x = x * scale / (number + 7)
        if number > 2.5:
            x = x * (number + 1)
            scale = number / 7 + (2 - number) * 0.1 + abs(-number)
    return x, scale


def _truth_enters_an_arm(x: Tensor, count: Tensor) -> tuple[Tensor, float]:
    is_large = bool(count > 4)
    share = count.item() / 7
    if x.sum() > 0:
        x = x / x.max()
        if is_large:
            share = share * 2
    return x, share


@pytest.mark.parametrize("program", [_enters_an_arm, _enters_an_inner_arm, _truth_enters_an_arm])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("training", [False, True])
def test_a_number_enters_an_arm(program: Any, backend: str, training: bool) -> None:
    """No higher-order operator takes a float or a truth; Inductor rounds floats."""
    assert_equivalent(
        lambda: fresh(program), _inputs, backend=backend, training=training, may_copy=True, graphs=1
    )


@pytest.mark.parametrize("divisor", [0.0, 3.0])
def test_python_divides_and_raises(divisor: float) -> None:
    def program(x: Tensor, count: Tensor) -> tuple[Tensor, float]:
        share = x.sum().item() / count.item()
        if x.max() > 0:
            x = x + 1
        return x, share

    assert_equivalent(
        lambda: fresh(program), lambda: [call(torch.tensor([1.0, 0.1]), torch.tensor(divisor))]
    )


def _written(x: Tensor, count: Tensor) -> tuple[Tensor, float]:
    number = x.sum().item()
    print(number / 3, number * 2 + 0.1, -number, 1 - number, f"{number / 7}", int(count) / 3)
    return x, number - 0.1


def test_inductor_writes_and_hands_out_doubles_as_they_are() -> None:
    """Inductor keeps symbolic floats in single precision."""
    assert_equivalent(lambda: fresh(_written), _inputs, backend="inductor", graphs=1)


def _of_both_arms(x: Tensor, truth: Tensor, count: Tensor) -> tuple[Tensor, Any, Any]:
    is_so, number = truth.item(), count.item()
    if x.sum() > 0:
        rest, total = is_so % number, is_so + number
    else:
        rest, total = is_so % number, number + is_so
        x = x * 3
    return x + 1, rest, total


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_numbers_that_both_arms_compute_alike(backend: str) -> None:
    def calls() -> list[Call]:
        return [
            call(torch.ones(2) * sign, torch.tensor(truth), torch.tensor(count))
            for sign in (1.0, -1.0)
            for truth in (True, False)
            for count in (1, 3, -2)
        ]

    assert_equivalent(lambda: fresh(_of_both_arms), calls, backend=backend)
