"""Gradients into a tensor without a history that an arm fills in place, and the call returns."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import bcmend

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


class _Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.both = (nn.Parameter(torch.ones(3) * n) for n in (2, 3))

    def filled(self, x: Tensor, p: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        p = x * self.both
        return self.filled(x, p), p


class RowsOfAMask(_Layer):
    def filled(self, x: Tensor, p: Tensor) -> Tensor:
        y, mask = torch.zeros_like(x), x > 0
        if mask.any():
            y[mask] = p[mask] * self.one[mask]
        return y


class TheWhole(_Layer):
    def filled(self, x: Tensor, p: Tensor) -> Tensor:
        y = x.new_zeros(3)
        if x.sum() > 0:
            y.copy_(p * self.one)
        return y


class AnItem(_Layer):
    def filled(self, x: Tensor, p: Tensor) -> Tensor:
        y = x.detach().clone()
        if x.sum() > 0:
            y[0] = p[0] * self.one[0]
        return y


@pytest.mark.parametrize("make", [RowsOfAMask, TheWhole, AnItem])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_gradients_flow_where_the_side_was_taken_and_nowhere_else(
    make: type[_Layer], backend: str
) -> None:
    eager = make()
    mended = copy.deepcopy(eager)
    compiled = bcmend.compile(mended, backend=backend, fullgraph=True)
    for factor in (1.0, -1.0, 2.0):
        for model, call in ((eager, eager), (mended, compiled)):
            model.zero_grad()
            y, p = call(factor * torch.ones(3))
            (y.sum() + p.sum()).backward()
        assert (eager.one.grad is None) == (factor < 0)
        assert eager.both.grad is not None
        torch.testing.assert_close(mended.both.grad, eager.both.grad)
        if eager.one.grad is None:
            assert mended.one.grad is None
        else:
            torch.testing.assert_close(mended.one.grad, eager.one.grad)
