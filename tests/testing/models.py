"""Small models for tests of what tests assert: without a break, with one, with one that stays."""

from __future__ import annotations

from torch import Tensor, nn


class Whole(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1


class Branch(nn.Module):
    """A branch, which bcmend mends."""

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x + 1
        return x - 1


class Opens(nn.Module):
    """A break that stays, and only one: nothing is computed behind it."""

    def forward(self, x: Tensor) -> Tensor:
        y = x + 1
        open(__file__)
        return y


def step(x: Tensor) -> Tensor:
    return x * 2


class Steps(Branch):
    """Differs once a function that is not equal is registered for ``step``."""

    def forward(self, x: Tensor) -> Tensor:
        return step(super().forward(x))
