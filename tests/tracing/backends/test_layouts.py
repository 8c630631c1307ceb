"""Layouts in Inductor: products of a data-dependent number of rows, operands of choices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bcmend
from bcmend.dynamo.shape_env import being_lowered
from tests.equivalence import Call, assert_equivalent, call
from tests.samples import name_of, sampled


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


def centered(x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    if mask.any():
        rows = x[0].mT[mask]
        x = rows @ y[0, :5] + x[1, :1, 1:].mean(1, keepdim=True)
    return x.sum() + y[0, 0].sum()


class Attention(torch.nn.Module):
    """Attention under a condition, of a number of rows that is a quotient of a size."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x: Tensor, p: Tensor) -> Tensor:
        rows = x.shape[1] // 10 - 1
        h = x[:, :rows, None].expand(-1, -1, 8) * 2
        if p < 0.5:
            q = self.layer(h).view(len(x), rows, 2, 4).transpose(1, 2)
            scores = torch.dropout((q @ q.transpose(2, 3)).softmax(-1), 0.5, train=True)
            h = h + (scores @ q).transpose(1, 2).reshape(len(x), rows, 8)
        return h


@pytest.mark.slow
@pytest.mark.parametrize("p", [0.1, 0.9])
def test_attention_with_dropout_of_a_dynamic_number_of_rows(p: float) -> None:
    torch._dynamo.reset()
    torch.manual_seed(3)
    model = Attention().double()
    drawn, condition = torch.randn(2, 91).double(), torch.tensor(p)

    def outcome(called: Callable[..., Tensor]) -> list[Tensor | None]:
        given = drawn.clone().requires_grad_()
        model.zero_grad(set_to_none=True)
        torch.manual_seed(5)
        result = called(given, condition)
        result.square().sum().backward()
        gradients = [given.grad, *(each.grad for each in model.parameters())]
        return [result, torch.get_rng_state(), *gradients]

    expected = outcome(model)
    try:
        compiled = torch.compile(
            bcmend.patch(model),
            backend="inductor",
            fullgraph=True,
            dynamic=True,
            options={"fallback_random": True},
        )
        found = outcome(compiled)
    finally:
        bcmend.unpatch()
        torch._dynamo.reset()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "program", sampled([common_size, outer_sizes, in_an_arm, centered], name_of, of=2)
)
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


def _outcomes(called: Callable[..., Tensor], *, gradients: bool) -> list[Any]:
    """Return what calls give that take each side, its strides, the gradients of their inputs."""
    torch.manual_seed(0)
    found: list[Any] = []
    for sign in (1, -1):
        x = torch.randn(5, 7).double().abs() * sign
        given = [each.requires_grad_(gradients) for each in (x, torch.randn(5, 7).double())]
        result = called(*given)
        found += [result.detach(), result.stride()]
        if gradients:
            found += torch.autograd.grad(result.square().sum(), given)
    return found


def _rows_in_another_order(x: Tensor, y: Tensor) -> Tensor:
    rows = torch.stack([x, y]).permute(2, 0, 1).softmax(-1)
    if x.sum() > 0:
        z = torch.bmm(rows, rows.transpose(1, 2))
    else:
        z = torch.bmm(rows.cos(), rows.transpose(1, 2)).exp()
    return z * 2


def _gradient_in_another_order(x: Tensor, y: Tensor) -> Tensor:
    rows = F.log_softmax(torch.stack([x, y, x]).transpose(0, 1), -1)
    if x.sum() > 0:
        z = F.layer_norm(rows.transpose(0, 1) @ y.t(), (5,))
    else:
        z = (rows.transpose(0, 1) @ x.t() @ y @ y.t()).sigmoid()
    return z.transpose(0, 1) * 2


def _repeated(x: Tensor, y: Tensor) -> Tensor:
    rows = x[:, :1].sin().expand(-1, 7)
    z = rows @ y.t() if x.sum() > 0 else rows.cos() @ y.t() @ y @ y.t()
    return z * 2


def _channels_last(x: Tensor, y: Tensor) -> Tensor:
    images = x.reshape(1, 1, 5, 7).expand(2, 4, 5, 7).contiguous(memory_format=torch.channels_last)
    images = F.conv2d(images, y[:4, :4].reshape(4, 4, 1, 1)).relu()
    z = F.conv2d(images, images[:1]) if x.sum() > 0 else F.conv2d(images.cos(), images[1:])
    return z * 2


def _one_in_another(x: Tensor, y: Tensor) -> Tensor:
    rows = torch.stack([x, y]).permute(2, 0, 1).softmax(-1)
    if x.sum() > 0:
        columns = (rows * 2).permute(1, 0, 2).softmax(-1)
        if y.sum() > 0:
            z = torch.bmm(columns, columns.transpose(1, 2)) @ columns
        else:
            z = torch.bmm(columns.cos(), columns.transpose(1, 2)).exp() @ columns
    else:
        z = (torch.bmm(rows.cos(), rows.transpose(1, 2)).exp() @ rows).permute(1, 0, 2)
    return z * 2


@pytest.mark.parametrize(
    ("dynamic", "gradients"),
    [
        (True, True),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in ((True, False), (False, True), (False, False))
        ),
    ],
)
@pytest.mark.parametrize(
    "program",
    sampled(
        [
            _rows_in_another_order,
            _gradient_in_another_order,
            _repeated,
            _channels_last,
            _one_in_another,
        ],
        name_of,
        of=2,
    ),
)
def test_operands_of_choices_have_the_strides_that_were_traced(
    program: Callable[..., Tensor], dynamic: bool, gradients: bool
) -> None:
    expected = _outcomes(program, gradients=gradients)
    mended = bcmend.patch(program)
    compiled = torch.compile(mended, backend="inductor", fullgraph=True, dynamic=dynamic)
    try:
        found = _outcomes(compiled, gradients=gradients)
        assert {each.status for each in bcmend.report(program).sites} == {"mended"}
    finally:
        bcmend.unpatch()
        torch._dynamo.reset()
    torch.testing.assert_close(found, expected)


def test_a_backward_that_is_compiled_after_unpatching_has_them_too() -> None:
    x, y = (torch.randn(5, 7).double().abs().requires_grad_() for _ in range(2))
    compiled = torch.compile(
        bcmend.patch(_gradient_in_another_order), backend="inductor", fullgraph=True
    )
    result = compiled(x, y)
    bcmend.unpatch()
    try:
        found = torch.autograd.grad(result.square().sum(), (x, y))
    finally:
        torch._dynamo.reset()
    expected = torch.autograd.grad(_gradient_in_another_order(x, y).square().sum(), (x, y))
    torch.testing.assert_close(found, expected)


class _Gated(nn.Module):
    """The leaves of a tree, whose gates are computed for the nodes of a level, if it has one."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.Linear(4, 12)

    def forward(self, x: Tensor, levels: Tensor) -> Tensor:
        state = torch.zeros_like(x)
        for level in range(2):
            mask = levels == level
            if not mask.any():
                continue
            rows = mask.nonzero().squeeze(1)
            _, gate, value = (self.gates(x[rows]) + state[rows].sum()).chunk(3, -1)
            state = state.index_copy(0, rows, gate.sigmoid() * value.tanh())
        return state[levels == 1]


@pytest.mark.parametrize("training", [False, True])
def test_rows_are_selected_behind_a_choice(training: bool) -> None:
    def calls() -> list[Call]:
        drawn = torch.Generator().manual_seed(0)
        levels = [[0, 1, 1, 2], [1, 0, 0, 1], [2, 2, 1, 1], [0, 0, 0, 1]]
        return [call(torch.randn(4, 4, generator=drawn), torch.tensor(each)) for each in levels]

    assert_equivalent(_Gated, calls, backend="inductor", training=training)
