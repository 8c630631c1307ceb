"""Infinite derivatives of what a branch leaves unused: nothing flows back through them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bcmend
from bcmend.tracing.gradients import gates

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")

NEGATIVE, POSITIVE, MIXED = ([0.0, -4.0], [1.0, 4.0], [1.0, -1.0])


def chosen_late(x: Tensor) -> Tensor:
    root = x.sqrt()
    return root if x.sum() > 0 else x


def not_a_number(x: Tensor) -> Tensor:
    """What decides is computed from what is left unused."""
    y = x.log() * x.sqrt()
    if y.isnan().any() or y.isinf().any():
        y = x * 2
    return y.sum() * 3


def returned_early(x: Tensor) -> Tensor:
    y = x.sqrt()
    if (x < 0).any():
        return x * 2
    return y


def of_two_branches(x: Tensor) -> Tensor:
    """One path is live for two truths, the other for one."""
    root, log = x.sqrt(), x.log()
    if x.sum() > 0:
        y = root + x
    else:
        y = x * 3
    if x.min() > 0:
        y = y + log
    return y


def in_arms_of_operators(x: Tensor) -> Tensor:
    """Sides that are so large that one of them runs; one has a branch inside."""
    y, inverse = x.sqrt(), (x * x).rsqrt()
    identity = torch.eye(2)
    if x.sum() > 0:
        for _ in range(8):
            y = torch.tanh(y @ identity)
        return y
    for _ in range(8):
        x = torch.sin(x @ identity)
    return x + inverse if x.max() > 100 else x


def before_a_branch_in_an_arm(x: Tensor) -> Tensor:
    identity = torch.eye(2)
    if x.sum() > 4:
        for _ in range(8):
            x = torch.tanh(x @ identity)
        return x
    root = x.sqrt()
    for _ in range(8):
        x = torch.sin(x @ identity)
    if x.min() > 0:
        x = x + root
    return x


def several_users(x: Tensor) -> Tensor:
    """What both sides use has a gradient, and goes into what one of them leaves unused."""
    shared = x.exp()
    inverse = (shared - 1).abs().rsqrt()
    if x.prod() > 0:
        return shared + inverse * 2 + inverse.log()
    return shared * 2


PROGRAMS = (
    chosen_late,
    not_a_number,
    returned_early,
    of_two_branches,
    in_arms_of_operators,
    before_a_branch_in_an_arm,
    several_users,
)


def _gradient(call: Callable[[Tensor], Tensor], numbers: list[float]) -> Tensor:
    x = torch.tensor(numbers, requires_grad=True)
    call(x).sum().backward()
    assert x.grad is not None
    return x.grad


@pytest.mark.parametrize(
    "backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("program", PROGRAMS)
def test_no_zero_is_multiplied(program: Callable[[Tensor], Tensor], backend: str) -> None:
    wanted = {tuple(each): _gradient(program, each) for each in (NEGATIVE, POSITIVE, MIXED)}
    assert any(gradient.isfinite().all() for gradient in wanted.values())
    mended = bcmend.compile(program, backend=backend, fullgraph=True)
    for each in (NEGATIVE, POSITIVE, MIXED, NEGATIVE, POSITIVE):
        found = _gradient(mended, each)
        torch.testing.assert_close(found, wanted[tuple(each)], equal_nan=True)


def test_a_parameter_beside_and_two_calls_before_a_backward() -> None:
    class Program(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor([2.0, 3.0]))

        def forward(self, x: Tensor) -> Tensor:
            root = (x * self.scale).sqrt()
            return root if x.sum() > 0 else x * self.scale.sum()

    found = []
    for call in (Program(), bcmend.compile(Program(), backend="aot_eager", fullgraph=True)):
        inputs = [torch.tensor(each, requires_grad=True) for each in (NEGATIVE, POSITIVE)]
        losses = [call(x).sum() for x in inputs]
        for loss in reversed(losses):
            loss.backward()
        parameters: Any = list(call.parameters())
        found.append([each.grad for each in (*inputs, *parameters)])
    assert all(torch.equal(*each) for each in zip(*found, strict=True))


def test_sparse_gradients_pass() -> None:
    class Program(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(3, 2, sparse=True)
            nn.init.ones_(self.table.weight)

        def forward(self, ids: Tensor, x: Tensor) -> Tensor:
            rows, others = self.table(ids), self.table(ids + 1)
            return rows.sum() + others.sum() if x.sum() > 0 else rows.sum() * 2

    found = []
    for call in (Program(), bcmend.compile(Program(), backend="eager", fullgraph=True)):
        for sign in (1.0, -1.0):
            call(torch.tensor([0, 1]), torch.tensor([sign])).backward()
        (gradient,) = (each.grad for each in call.parameters())
        assert gradient is not None and gradient.is_sparse
        found.append(gradient.to_dense())
    assert torch.equal(*found)


def _gates_of(program: Callable[..., Any], *arguments: Any) -> int:
    """Return how many gates the graphs of a call have."""
    found = []

    def counted(module: torch.fx.GraphModule, _: Any) -> Any:
        found.append(sum(node.target is gates.gate for node in module.graph.nodes))
        return module.forward

    bcmend.compile(program, backend=counted, fullgraph=True)(*arguments)
    return sum(found)


def plain(x: Tensor) -> Tensor:
    y = x * 2
    if x.sum() > 0:
        y = (y + 1).sqrt()
    return y


def test_what_every_side_uses_needs_no_gate() -> None:
    x = torch.ones(2, requires_grad=True)
    assert _gates_of(plain, x) == 0
    assert _gates_of(returned_early, x) == 1


def test_nothing_is_gated_without_gradients() -> None:
    x = torch.ones(2)
    assert _gates_of(returned_early, x) == 0
    with torch.no_grad():
        assert _gates_of(returned_early, x.requires_grad_()) == 0


def test_what_is_changed_in_place_is_left_alone() -> None:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        root = y.exp().sqrt()
        y.add_(1)
        return root if x.sum() > 0 else y

    mended = bcmend.compile(program, backend="aot_eager", fullgraph=True)
    for each in (POSITIVE, [-3.0, -4.0], POSITIVE):
        torch.testing.assert_close(_gradient(mended, each), _gradient(program, each))
