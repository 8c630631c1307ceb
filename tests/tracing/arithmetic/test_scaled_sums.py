"""Sums with a factor are those of eager execution with Inductor, too."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.equivalence import Call, assert_equivalent, call


class Averages(nn.Module):
    """A codebook whose vectors are moving averages; `is_written` says how the sum is written."""

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.in_place = in_place
        self.register_buffer("mean", torch.linspace(-1, 1, 12).reshape(3, 4))
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        x = x * self.weight
        nearest = torch.cdist(x, self.mean).argmin(1)
        codes = nn.functional.one_hot(nearest, 3).to(x)
        if self.training:
            added = (codes.t() @ x).detach()
            if self.in_place:
                self.mean.mul_(0.75).add_(added, alpha=0.25)
            else:
                self.mean = torch.add(self.mean * 0.75, added, alpha=0.25)
        if nearest.float().mean() > 1:
            x = x * 2
        return (
            x + torch.add(x, codes @ self.mean.detach(), alpha=2) - x.add(x @ x.t() @ x, alpha=-0.5)
        )


def _calls() -> list[Call]:
    x = torch.linspace(-1, 1, 20).reshape(5, 4)
    return [call(x), call(-x), call(x.flip(0) * 2)]


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("in_place", [False, True])
def test_a_moving_average_has_its_factor(in_place: bool, backend: str) -> None:
    make: Any = lambda: Averages(in_place)  # noqa: E731
    assert_equivalent(make, _calls, training=True, backend=backend)
