"""Layers whose running statistics are cumulative averages: one graph, the statistics of eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

from bcmend.tracing.substitutes import batch_norms
from tests.equivalence import Call, assert_equivalent, call


class _InAnArm(nn.Module):
    def __init__(self, *, affine: bool = True) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3, momentum=None, affine=affine)
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x) if x.sum() > 0 else x * self.scale
        return y * 2


class _InBothAndBefore(_InAnArm):
    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x * self.scale) + x
        if x.sum() > 0:
            return self.norm(x)
        return self.norm(self.norm(x) - 1)


class _Nested(_InAnArm):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = self.norm(x) if x[0, 0] > 1 else x - self.scale
        return x * self.scale + self.norm.running_mean


class _OfImages(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2, momentum=None), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        x = x[None, None]
        return self.layers(x) if x.sum() > 0 else x.expand(1, 2, *x.shape[2:]) * 1.0


class _Alone(_InAnArm):
    """Nothing that Dynamo stops at is in a function of the program."""

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x) * self.scale


def _without_scale() -> nn.Module:
    return _InAnArm(affine=False)


def _inputs() -> Sequence[Call]:
    x = torch.linspace(-1, 3, 12).reshape(4, 3).sin()
    return [call(each.clone()) for each in (x, -x, x + 1, x * 3, 2 - x)]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "make", [_InAnArm, _Alone, _without_scale, _InBothAndBefore, _Nested, _OfImages]
)
def test_cumulative_averages(make: Callable[[], nn.Module], training: bool, backend: str) -> None:
    assert_equivalent(make, _inputs, training=training, backend=backend, may_copy=True)


@pytest.mark.slow
def test_cumulative_averages_with_inductor() -> None:
    assert_equivalent(_InAnArm, _inputs, training=True, backend="inductor")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_operator_gives_what_the_layer_keeps(dtype: torch.dtype) -> None:
    x = torch.randn(5, 3, 2, dtype=dtype)
    mean, variance = torch.randn(3, dtype=dtype), torch.rand(3, dtype=dtype)
    weight, momentum = torch.rand(3, dtype=dtype), torch.tensor(1 / 3, dtype=torch.float64)
    found = batch_norms.STATISTICS(x, mean, variance, weight, None, momentum, 1e-5)
    before = mean.clone(), variance.clone()
    kept = [mean.clone(), variance.clone()]
    torch.nn.functional.batch_norm(x, *kept, weight, None, True, 1 / 3, 1e-5)
    assert all(map(torch.equal, found, kept))
    assert torch.equal(mean, before[0]) and torch.equal(variance, before[1])
