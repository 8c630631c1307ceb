"""Functions of autograd's that are given one tensor as several arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.equivalence import Call, assert_equivalent, call, fresh

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


class Weighted(torch.autograd.Function):
    """A product that has a gradient for one of its arguments alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, first: Tensor, second: Tensor, power: int) -> Tensor:
        ctx.save_for_backward(x, first, second)
        ctx.is_same = first is second
        return x * first**power * second

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        _, first, second = ctx.saved_tensors
        scale = 3 if ctx.is_same else 5
        return scale * first * second * gradients[0], None, None, None


class OfTheLast(torch.autograd.Function):
    """The gradient is that of the second argument."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        x, _ = ctx.saved_tensors
        return None, x * gradients[0] * 7


class OfBoth(OfTheLast):
    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        x, y = ctx.saved_tensors
        return y * gradients[0], x * gradients[0]


def _a_mask_twice(x: Tensor, y: Tensor) -> Any:
    mask = (y > 0).float() + 1
    if x.sum() > 0:
        x = x + 1
    return Weighted.apply(x * y, mask, mask, 2)  # type: ignore[no-untyped-call]


def _two_masks(x: Tensor, y: Tensor) -> Any:
    mask = (y > 0).float() + 1
    if x.sum() > 0:
        x = x + 1
    return Weighted.apply(x * y, mask, mask.clone(), 2)  # type: ignore[no-untyped-call]


def _an_argument_three_times(x: Tensor, y: Tensor) -> Any:
    if x.sum() > 0:
        x = x + 1
    return Weighted.apply(x, x, x, 1) + y  # type: ignore[no-untyped-call]


def _gradient_of_the_last(x: Tensor, y: Tensor) -> Any:
    if x.sum() > 0:
        y = y + 1
    z = x * y
    return OfTheLast.apply(z, z) + x * z  # type: ignore[no-untyped-call]


def _gradients_of_both(x: Tensor, y: Tensor) -> Any:
    if x.sum() > 0:
        y = y + 1
    z = x * y
    return OfBoth.apply(z, z) + x * z  # type: ignore[no-untyped-call]


def _calls() -> list[Call]:
    signs = torch.tensor([1.0, -1.0, 2.0])
    return [call(torch.full((3,), each), signs.clone()) for each in (1.5, -2.0)]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "program", [_a_mask_twice, _two_masks, _an_argument_three_times, _gradient_of_the_last]
)
def test_a_gradient_for_one_of_the_arguments(
    program: Callable[..., Any], backend: str, training: bool
) -> None:
    make = lambda: fresh(program)  # noqa: E731
    assert_equivalent(make, _calls, training=training, backend=backend)


def test_inductor() -> None:
    assert_equivalent(lambda: fresh(_a_mask_twice), _calls, training=True, backend="inductor")


def test_gradients_for_several_of_them_break_the_graph() -> None:
    make = lambda: fresh(_gradients_of_both)  # noqa: E731
    assert_equivalent(make, _calls, training=True, fullgraph=False, graphs=None, recompiles=None)
