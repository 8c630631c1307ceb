"""Products of matrices with a data-dependent number of rows are compiled by Inductor."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import bcmend
from bcmend.dynamo.shape_env import being_lowered


def common_size(x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    found = mask.nonzero().squeeze(-1)
    return torch.bmm((x[:, :, found] * 2).softmax(-1), y[:, found] + 1).sin()


def outer_sizes(x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    found = mask.nonzero().squeeze(-1)
    rows, columns = x.transpose(1, 2)[:, found], y.transpose(1, 2)[:, :, found]
    return torch.matmul(rows.cos(), (x + 1)) @ (y * 2) @ columns.tanh()


def in_an_arm(x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    if mask.any():
        z = common_size(x, y, mask)
    else:
        z = torch.bmm(x, y).cos()
    return z * 2


@pytest.mark.parametrize("program", [common_size, outer_sizes, in_an_arm])
def test_results_and_gradients_are_those_of_eager(program: Callable[..., Tensor]) -> None:
    torch._dynamo.reset()
    torch.manual_seed(3)
    torch.manual_seed(3)
    drawn = torch.randn(4, 5, 6).double(), torch.randn(4, 6, 5).double()
    if program is outer_sizes:
        drawn = torch.randn(4, 6, 6).double(), torch.randn(4, 6, 6).double()
    masks = [[1, 1, 0, 1, 0, 0], [1, 0, 0, 0, 0, 0], [1] * 6, [0] * 6]

    def outcome(called: Callable[..., Tensor], mask: list[int]) -> list[Tensor]:
        given = [each.clone().requires_grad_() for each in drawn]
        result = called(*given, torch.tensor(mask, dtype=torch.bool))
        return [result, *torch.autograd.grad(result.square().sum(), given)]

    expected = [outcome(program, mask) for mask in masks]
    compiled = torch.compile(bcmend.patch(program), backend="inductor", fullgraph=True)
    try:
        found = [outcome(compiled, mask) for mask in masks]
    finally:
        bcmend.unpatch()
        torch._dynamo.reset()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_nothing_is_lowered_outside_inductor() -> None:
    assert being_lowered() is None
