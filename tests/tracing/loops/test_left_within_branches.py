"""Loops that are left from within a branch or by several jumps, and what one side alone counts."""

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

_TURNS = 30


def _calls() -> list[Call]:
    drawn = torch.Generator().manual_seed(0)
    scales = [(0.3, -0.3), (1.0, 0.3), (0.1, 0.0), (2.0, -1.0)]
    return [call(torch.randn(5, generator=drawn) * scale + shift) for scale, shift in scales]


def _counted_or_left(x: Tensor) -> Any:
    count = 0
    for _ in range(_TURNS):
        x = torch.tanh(x * 1.1) + 0.05
        if x.sum() < 1:
            count = count + 1
        elif x.sum() > 4:
            break
    return x, count


def _patience(x: Tensor) -> Any:
    best, bad, found = float("inf"), 0, x
    for _ in range(_TURNS):
        x = torch.cos(x * 1.3)
        value = x.abs().sum().item()
        if value < best:
            best, found, bad = value, x, 0
        else:
            bad += 1
            if bad >= 3:
                break
    return found * best, bad


def _without_an_end(x: Tensor) -> Any:
    count = 0
    while True:
        x = torch.tanh(x * 1.1) + 0.05
        if x.sum() < 1:
            count = count + 1
            continue
        loss = x.square().mean()
        if loss > 0.2:
            break
        x = x + 0.01
    return x, loss, count


def _left_twice(x: Tensor) -> Any:
    for turn in range(_TURNS):  # noqa: B007
        x = torch.tanh(x * 1.1) + 0.05
        if x.sum() > 4:
            break
        y = x * 2
        x = x + 0.01
        if y.mean() > 1.3:
            break
    return x, turn


def _left_within(x: Tensor) -> Any:
    n = 0
    for _ in range(_TURNS):
        x = torch.tanh(x * 1.1) + 0.05
        if x.sum() > 1:
            n = n + 1
            if x.mean() > 0.55:
                break
    return x, n


def _goes_on(x: Tensor) -> Any:
    total = x.sum()
    for turn in range(_TURNS):
        x = torch.cos(x * 1.3)
        if x.sum() < 1:
            continue
        total = total + turn
        if total > 30:
            break
    return total


def _returns_within_a_branch(x: Tensor) -> Any:
    total = x.sum()
    for turn in range(_TURNS):
        x = torch.cos(x * 1.3)
        if x.sum() > 1:
            total = total + turn
            if total > 30:
                return total
    return total


def _goes_on_or_returns(x: Tensor) -> Any:
    total = x.sum()
    for turn in range(_TURNS):
        x = torch.cos(x * 1.3)
        if x.sum() < 1:
            continue
        total = total + turn
        if not total > 30:
            continue
        return total, turn
    return total, -1


def _returns_within(x: Tensor) -> Any:
    for turn in range(_TURNS):
        x = torch.tanh(x * 1.1) + 0.05
        if x.sum() < 1:
            x = x + 0.01
        elif x.sum() > 3:
            return x * 2, turn
    return x, -1


def _test_and_break(x: Tensor) -> Any:
    y = x
    while (x * x).sum() < 20:
        y = x
        x = x * 1.05 + 0.01
        if x.mean() > 0.5:
            y = y + 1
            if x.max() > 2:
                break
    return x, y


def _with_else(x: Tensor) -> Any:
    n = torch.zeros(())
    for _ in range(_TURNS):
        x = torch.tanh(x * 1.1) + 0.05
        if x.sum() < 1:
            n = n + 1
        elif x.sum() > 4:
            x = x * 3
            break
        else:
            n = n - 1
    else:
        x = x - 5
    return x, n


def _breaks_and_returns(x: Tensor) -> Any:
    before = None
    for turn in range(_TURNS):  # noqa: B007
        x = torch.tanh(x * 1.1) + 0.05
        loss = (x - 0.3).pow(2).sum()
        if before is not None:
            if (before - loss).abs() < 1e-3:
                break
            elif loss > 10:
                return x
        before = loss
    return x, turn


def _fails_or_is_left(x: Tensor) -> Any:
    for turn in range(_TURNS):  # noqa: B007
        x = x * 1.2 + 0.01
        if x.sum() > 6:
            if x.max() > 4:
                raise ValueError("too large")
            elif x.min() > 1:
                break
    return x, turn


PROGRAMS = [
    _counted_or_left,
    _patience,
    _without_an_end,
    _left_twice,
    _left_within,
    _goes_on,
    _returns_within_a_branch,
    _goes_on_or_returns,
    _returns_within,
    _test_and_break,
    _with_else,
    _breaks_and_returns,
]


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_such_a_loop_is_one_graph(program: Program, fullgraph: bool) -> None:
    assert_equivalent(lambda: program, _calls, fullgraph=fullgraph)


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_such_a_loop_in_training(program: Program, fullgraph: bool) -> None:
    assert_equivalent(
        lambda: program, _calls, training=True, backend="aot_eager", fullgraph=fullgraph
    )


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("program", [_patience, _without_an_end, _left_within])
def test_such_a_loop_with_inductor(program: Program, training: bool) -> None:
    assert_equivalent(lambda: program, _calls, training=training, backend="inductor")


def test_a_turn_may_fail_beside() -> None:
    def calls() -> list[Call]:
        return [*_calls(), call(torch.full((5,), 0.1)), call(torch.full((5,), math.nan))]

    assert_equivalent(lambda: _fails_or_is_left, calls)


class _Halting(nn.Module):
    """Adds up states until all rows have halted, as adaptive computation time does."""

    def __init__(self) -> None:
        super().__init__()
        self.step, self.halt = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Any:
        total, weights, updates = torch.zeros_like(x), torch.zeros(x.shape[0]), 0
        for turn in range(12):  # noqa: B007
            x = torch.tanh(self.step(x)) + x
            p = torch.sigmoid(self.halt(x)).squeeze(-1) * 0.5
            running = weights < 0.9
            if running.all():
                updates += 1
                total = total + p[:, None] * x
            elif running.any():
                total = total + (p * running)[:, None] * x
            else:
                break
            weights = weights + p * running
        return total, weights, turn, updates


def _halting() -> nn.Module:
    torch.manual_seed(0)
    return _Halting()


@pytest.mark.parametrize(("training", "backend"), [(False, "eager"), (True, "aot_eager")])
def test_a_module_that_halts(training: bool, backend: str) -> None:
    def calls() -> list[Call]:
        drawn = torch.Generator().manual_seed(1)
        return [call(torch.randn(3, 4, generator=drawn) * scale) for scale in (1.0, 5.0, 0.1)]

    assert_equivalent(_halting, calls, training=training, backend=backend)


def _counts_in_a_loop(x: Tensor) -> Any:
    low, high, kept = 0, 0.0, x
    for turn in range(_TURNS):
        if x.sum() > 4:
            break
        x = torch.tanh(x * 1.1) + 0.05
        if x.mean() < 0.3:
            low += turn
        else:
            high = high + 0.5
            kept = x
    return kept * high + low, low, high


@pytest.mark.parametrize(("training", "backend"), [(False, "eager"), (True, "aot_eager")])
def test_what_one_side_counts_is_carried(training: bool, backend: str) -> None:
    assert_equivalent(lambda: _counts_in_a_loop, _calls, training=training, backend=backend)


def _best_so_far(x: Tensor) -> Any:
    best, score = None, 1.0
    for _ in range(_TURNS):
        x = torch.tanh(x * 1.1) + 0.05
        found = x.sum().item()
        if found > score:
            score, best = found, x * 2
            if score > 3.5:
                break
    return x if best is None else best


def _last_of_some(x: Tensor) -> Any:
    last, turn = None, 0
    while x.sum() < 4 and turn < 25:
        x = torch.tanh(x * 1.1) + 0.05
        if x.mean() > 0.3:
            last = x * 2
        turn += 1
    return last, x


def _sum_of_some(x: Tensor) -> Any:
    loss = 0
    for _ in range(_TURNS):
        x = torch.tanh(x * 1.1) + 0.05
        if x.sum() > 1:
            loss = loss + x.mean()
        if x.sum() > 3:
            break
    return loss + x.sum()


def _compared_with_the_one_before(x: Tensor) -> Any:
    before = None
    for _ in range(_TURNS):
        y = torch.cos(x)
        if y.sum() > 1.0:
            if before is not None and (before - y).abs().max() < 1e-2:
                break
            before = y
        x = y * 0.9
    return x, before


_LATE = [_best_so_far, _last_of_some, _sum_of_some, _compared_with_the_one_before]


@pytest.mark.parametrize(("training", "backend"), [(False, "eager"), (True, "aot_eager")])
@pytest.mark.parametrize("program", _LATE)
def test_what_is_a_tensor_after_some_turns_is_carried(
    program: Program, training: bool, backend: str
) -> None:
    assert_equivalent(lambda: program, _calls, training=training, backend=backend)


def _bisections(x: Tensor) -> Any:
    error, turns = float("inf"), 0
    while error > 1e-2 and turns < 20:
        low, high = 0.0, 2.0
        for _ in range(10):
            middle = (low + high) / 2
            if (x * middle).sum().abs().item() > 1.0:
                high = middle
            else:
                low = middle
        y = torch.tanh(x * low) * 0.5 + 0.1
        error = (y - x).norm().item()
        x = y
        turns += 1
    return x, turns


def test_a_loop_tests_a_number_that_was_a_constant_before_it() -> None:
    assert_equivalent(lambda: _bisections, _calls)
