"""What branches are given and only compare gets no gradient, not even one of zeros."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bcmend

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


class Skipped(nn.Module):
    """Goes another way where a product is not a number; zero times infinity is none."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Embedding(4, 3)

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        found: Tensor = self.rows(at[0])
        product = x * found
        if x[0] > 100:
            return found * 3
        if product.isnan().any():
            return found - self.rows(at[1])
        return found


class InAnArm(Skipped):
    """The same inside of another branch."""

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        if x[1] < 50:
            return super().forward(x, at)
        return self.rows(at[2])


def _step(net: nn.Module, called: Any, *given: Tensor) -> tuple[Tensor, Any]:
    net.zero_grad()
    result = called(*given)
    result.sum().backward()
    return result.detach(), next(net.parameters()).grad


@pytest.mark.parametrize(
    ("backend", "make"),
    [
        ("eager", Skipped),
        ("eager", InAnArm),
        ("aot_eager", Skipped),
        ("aot_eager", InAnArm),
        ("inductor", InAnArm),
        pytest.param("inductor", Skipped, marks=pytest.mark.slow),
    ],
)
def test_what_is_not_finite_does_not_come_back(make: type[nn.Module], backend: str) -> None:
    torch.manual_seed(0)
    net, at = make(), torch.tensor([0, 1, 2])
    nan, infinite = float("nan"), float("inf")
    inputs = [[0, 0, 0], [0, nan, 0], [0, 0, infinite], [infinite, 0, 0], [0, 60.0, nan]]
    expected = [_step(net, net, torch.tensor(each), at) for each in inputs]
    compiled = torch.compile(bcmend.patch(net), backend=backend, fullgraph=True)
    for each, wanted in zip(inputs, expected, strict=True):
        found = _step(net, compiled, torch.tensor(each), at)
        torch.testing.assert_close(found, wanted, equal_nan=True)
