"""``max`` and ``min`` of tuples of tensors."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from tests.equivalence import Call, assert_equivalent, call, fresh

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")

NAN = math.nan


def _largest(a: Tensor, b: Tensor) -> Any:
    return max((one, other) for one, other in zip(a, b, strict=True))


def _smallest(a: Tensor, b: Tensor) -> Any:
    one, other = min(list(zip(a, b, strict=True)))
    return one * 2, other


def _largest_of_some(a: Tensor, b: Tensor) -> Any:
    try:
        one, other = max(each for each in zip(a, b, strict=True) if each[1] > 0)
    except ValueError as error:
        return a * 2, type(error).__name__
    return one * other, ""


def _calls() -> list[Call]:
    pairs = [
        ([1.0, 3.0, 3.0], [1.0, -2.0, 4.0]),
        ([3.0, 3.0, 1.0], [-1.0, -1.0, -1.0]),
        ([NAN, 2.0, 2.0], [1.0, NAN, 4.0]),
        ([2.0, NAN, 2.0], [1.0, 1.0, 4.0]),
        ([0.0, -0.0, 0.0], [2.0, 2.0, 2.0]),
        ([1.0, 3.0, 3.0], [1.0, -2.0, 4.0]),
    ]
    return [call(*map(torch.tensor, each)) for each in pairs]


@pytest.mark.parametrize("program", [_largest, _smallest, _largest_of_some])
def test_the_first_items_that_differ_decide(program: Any) -> None:
    assert_equivalent(lambda: fresh(program), _calls, graphs=None, recompiles=None)


def test_the_one_that_is_returned_is_that_one() -> None:
    def program(a: Tensor, b: Tensor) -> Any:
        pairs = [(a[0], b[0]), (a[1], b[1])]
        found = max(pairs)
        return found[0] is pairs[0][0], found[0]

    assert_equivalent(lambda: fresh(program), _calls, graphs=None, recompiles=None)


def test_what_requires_gradients_is_left_to_eager_execution() -> None:
    calls = lambda: [  # noqa: E731
        call(*(each.requires_grad_() for each in given.arguments)) for given in _calls()
    ]
    make = lambda: fresh(_smallest)  # noqa: E731
    assert_equivalent(make, calls, graphs=None, recompiles=None, fullgraph=False, training=True)


def test_tuples_of_other_things_are_left_to_torch() -> None:
    def program(x: Tensor) -> Any:
        return max((1, 2), (1, 3)), (x if x.sum() > 0 else -x)

    bcmend.patch(program)
    found = torch.compile(program, backend="eager", fullgraph=True)(torch.ones(2))
    assert found[0] == (1, 3)
