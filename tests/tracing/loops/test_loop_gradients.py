"""Loops that a tensor ends, with gradients: sums that begin at zero, and counted numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bcmend.reports.site_report import Report
from tests.equivalence import Call, assert_equivalent, call

Program = Callable[[Tensor, Tensor], Any]


def _inputs() -> list[Call]:
    values = (([1.0, 2, 3], 3), ([-1.0, -2, -3], 1), ([0.1, 0.2, 0.3], 7), ([9.0, 8, 7], 1))
    return [call(torch.tensor(vector), torch.tensor(bound)) for vector, bound in values]


def _sum_from_zero(x: Tensor, bound: Tensor) -> tuple[Tensor, Tensor]:
    total, y = x.new_zeros(()), x * 1
    while total < bound:
        total = total + y.abs().sum()
        y = y * 1.1
    return total * total, y


def _sum_of_sums(x: Tensor, bound: Tensor) -> Tensor:
    one, other, y = torch.zeros(3), torch.zeros(()), x * 1
    while other < bound:
        other = other + one.sum() * 0.25 + 1
        one = one + y
        y = y * 0.9
    return one.sum() * other


def _sum_without_a_gradient(x: Tensor, bound: Tensor) -> tuple[Tensor, Tensor]:
    steps, y = torch.zeros(()), x * 1
    while steps < bound:
        steps = steps + 1
        y = y * 0.9 + x
    return y, steps


def _counted_and_returned(x: Tensor, bound: Tensor) -> tuple[Tensor, int]:
    y, turns = x * 1, 0
    while y.norm() > 1.5:
        y = y * 0.97
        turns += 1
    return y * 1, turns


def _counted_and_used_after(x: Tensor, bound: Tensor) -> Tensor:
    y, turns, left = x * 1, 0, 100
    while y.norm() > 1.5:
        y = y * 0.97
        turns, left = turns + 2, left - 1
    if turns > 10:
        y = y + 1
    return y * turns + left


def _counted_down(x: Tensor, bound: Tensor) -> tuple[Tensor, int]:
    y, left = x * 1, (x.abs().sum() * 2 + 1).to(torch.int64).item()
    while left > 0:
        y = y.sin() + x
        left -= 2
    return y + 0, left


@pytest.mark.parametrize(
    "program",
    [
        _sum_from_zero,
        _sum_of_sums,
        _sum_without_a_gradient,
        _counted_and_returned,
        _counted_and_used_after,
        _counted_down,
    ],
    ids=lambda program: program.__name__,
)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("training", [False, True])
def test_a_loop_is_eagers(program: Program, backend: str, training: bool) -> None:
    found = assert_equivalent(
        lambda: program, _inputs, backend=backend, training=training, may_copy=True
    )
    assert found.graphs == 1 and _is_one_operator(found.report)


def _is_one_operator(report: Report | None) -> bool:
    assert report is not None
    return "while_loop" in {site.lowering for site in report.sites}


class _Refined(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.step = nn.Linear(3, 3)

    def forward(self, x: Tensor, bound: Tensor) -> tuple[Tensor, int]:
        state, error, turns = torch.zeros(3), torch.ones(()) * 2, 0
        while error > 0.5:
            state = state * 0.5 + self.step(x).tanh() * 0.1
            error = error * 0.75
            turns += 1
        return state, turns


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_parameters_get_the_gradients_of_every_iteration(backend: str) -> None:
    found = assert_equivalent(_Refined, _inputs, backend=backend, training=True)
    assert found.graphs == 1 and _is_one_operator(found.report)


class Solver(nn.Module):
    """Conjugate gradients, which are left when the residual is small."""

    def forward(self, matrix: Tensor, right: Tensor) -> tuple[Tensor, int]:
        x, residual = torch.zeros_like(right), right * 1
        direction, size = residual.clone(), residual @ residual
        for turn in range(8):
            turns = turn + 1
            step = matrix @ direction
            length = size / (direction @ step)
            x = x + length * direction
            residual = residual - length * step
            following = residual @ residual
            if torch.sqrt(following) < 1e-2:
                break
            direction = residual + following / size * direction
            size = following
        return x, turns


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_few_turns_that_would_be_too_many_branches_in_each_other(backend: str) -> None:
    def calls() -> list[Call]:
        drawn = torch.Generator().manual_seed(0)
        found = []
        for scale in (1.0, 1e-3, 10.0):
            rows = torch.randn(6, 6, generator=drawn) * 0.3
            matrix = rows @ rows.t() + torch.eye(6)
            found.append(call(matrix, scale * torch.randn(6, generator=drawn)))
        return found

    assert_equivalent(Solver, calls, backend=backend, training=True)
