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
