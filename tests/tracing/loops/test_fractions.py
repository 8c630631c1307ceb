"""Loops that carry floating numbers of Python's, most of them out of tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.equivalence import Call, assert_equivalent, call

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")

Program = Callable[[Tensor], Any]


def _calls() -> list[Call]:
    drawn = torch.Generator().manual_seed(0)
    rows = [torch.randn(3, 3, generator=drawn) * scale for scale in (1.0, 0.01, 3.0)]
    return [*map(call, rows), call(torch.zeros(3, 3)), call(torch.full((3, 3), math.nan))]


def _until_it_changes_little(x: Tensor) -> Any:
    error = float("inf")
    while error > 1e-2:
        y = torch.tanh(x) * 0.5
        error = (y - x).norm().item()
        x = y
    return x, error


def _until_the_loss_changes_little(x: Tensor) -> Any:
    before = float("inf")
    for turn in range(30):  # noqa: B007
        x = torch.tanh(x) * 0.5
        loss = x.pow(2).mean().item()
        if abs(before - loss) < 1e-4:
            break
        before = loss
    return x * before, turn


def _steps_of_their_own(x: Tensor) -> Any:
    time, turns = 0.0, 0
    while time < 1.0:
        step = float(0.1 + x.abs().mean().clamp(max=0.5))
        x = x - step * torch.tanh(x)
        time += step
        turns += 1
    return x, time, turns


def _accepted_or_not(x: Tensor) -> Any:
    time, step = 0.0, 0.3
    while time < 1.0:
        error = (x * step).abs().max().item() / 0.5
        if error <= 1.0:
            time += step
            x = x - step * torch.tanh(x)
        step = min(step * 0.9 / (error + 0.5) ** 0.5, 0.5) + 1e-3
    return x, step


def _cut_in_halves(x: Tensor) -> Any:
    low, high = 0.0, float(x.abs().max())
    while high - low > 1e-2:
        middle = (low + high) / 2
        if float((x.abs() > middle).float().mean()) > 0.3:
            low = middle
        else:
            high = middle
    return x * (x.abs() > low), low


def _smaller_steps(x: Tensor) -> Any:
    rate, first = 1.0, x.pow(2).sum().item()
    while True:
        y = x - rate * torch.sin(3 * x)
        if y.pow(2).sum().item() <= first or rate < 1e-3:
            break
        rate *= 0.5
    return y, rate


def _signs_of_zero(x: Tensor) -> Any:
    total, turns = -0.0, 0
    while total < x.sum().item() and turns < 50:
        total = total + x.abs().max().item() * 0.0 + 1.5
        turns += 1
    return total, math.copysign(1.0, total)


PROGRAMS: list[Program] = [
    _until_it_changes_little,
    _until_the_loss_changes_little,
    _steps_of_their_own,
    _accepted_or_not,
    _cut_in_halves,
    _smaller_steps,
    _signs_of_zero,
]
#: Those that end for numbers that are none.
_ENDING = {_until_the_loss_changes_little, _signs_of_zero, _smaller_steps, _cut_in_halves}


def _calls_of(program: Program) -> list[Call]:
    found = _calls()
    return found if program in _ENDING or program is _until_it_changes_little else found[:-1]


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_such_a_loop_is_one_graph(program: Program, fullgraph: bool) -> None:
    assert_equivalent(lambda: program, lambda: _calls_of(program), fullgraph=fullgraph)


@pytest.mark.parametrize("program", PROGRAMS[:3])
def test_such_a_loop_with_inductor(program: Program) -> None:
    found = assert_equivalent(
        lambda: program, lambda: _calls_of(program), backend="inductor", graphs=None
    )
    assert found.graphs == 1


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.parametrize("fullgraph", [False, True])
def test_no_gradient_flows_through_the_numbers(backend: str, fullgraph: bool) -> None:
    class Converging(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Any:
            error = float("inf")
            while error > 1e-2:
                y = torch.tanh(self.layer(x)) * 0.5
                error = (y - x).norm().item()
                x = y
            return x * error

    assert_equivalent(
        Converging, lambda: _calls()[:3], backend=backend, fullgraph=fullgraph, training=True
    )


def test_a_fraction_that_was_an_integer() -> None:
    def program(x: Tensor) -> Any:
        total, turns = 0, 0
        while total < 2:
            total = total + float(x.abs().max().clamp(min=0.25, max=1.0))
            turns += 1
        return total, turns

    assert_equivalent(lambda: program, lambda: _calls()[:4])


def _left_behind_another_branch(x: Tensor) -> Any:
    count = 0
    for _ in range(20):
        x = torch.tanh(x * 1.1) + 0.05
        if x.sum() < 1:
            count = count + 1
        elif x.sum() > 4:
            break
    return x, count


def _best_of_some(x: Tensor) -> Any:
    best, found = float("inf"), x
    for _ in range(20):
        x = torch.cos(x * 1.3)
        value = x.abs().sum().item()
        if value < best:
            best, found = value, x
        elif value > best * 1.5:
            break
    return found, best


def _skipped(x: Tensor) -> Any:
    total = x.sum()
    for turn in range(20):
        x = torch.cos(x * 1.3)
        if x.sum() < 1:
            continue
        total = total + turn
        if total > 30:
            break
    return total


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [_left_behind_another_branch, _best_of_some, _skipped])
def test_a_loop_goes_on_where_a_turn_took_another_way(program: Program, backend: str) -> None:
    assert_equivalent(
        lambda: program,
        _calls,
        backend=backend,
        fullgraph=False,
        graphs=None,
        recompiles=None,
        may_copy=program is _best_of_some,  # it keeps what it was given where nothing is better
    )
