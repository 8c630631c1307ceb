"""Loops over known ranges that a tensor ends, and whose number is read in them or behind them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.equivalence import Call, assert_equivalent, call

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")

Program = Callable[..., Any]


def _number_behind_it(x: Tensor) -> Any:
    for i in range(30):  # noqa: B007
        y = (x + 2 / x) / 2
        if (y - x).abs().max() < 1e-3:
            break
        x = y
    return x, i


def _number_in_it(x: Tensor) -> Any:
    for i in range(40):
        x = x + i
        if x.sum() > 100:
            break
    return x


def _other_bounds(x: Tensor) -> Any:
    for i in range(95, 3, -4):
        x = x * 1.25
        if x.sum() > i:
            break
    return x, i * 2


def _number_of_an_else(x: Tensor) -> Any:
    i = -1
    for i in range(20):  # noqa: B007
        x = x * 1.5
        if x.sum() > 100:
            break
    else:
        return -x, i
    return x, i


def _returned_in_it(x: Tensor) -> Any:
    for i in range(25):
        x = x * 1.5
        if x.sum() > 100:
            return x, i
    return x - 1, None


def _goes_on_counting(x: Tensor) -> Any:
    for i in range(25):  # noqa: B007
        x = x * 1.5
        if x.sum() > 100:
            break
    for j in range(3):
        x = x + j * i
    return x


def _limit_moves(x: Tensor) -> Any:
    x, count = x + 1, 0
    for i in range(50):
        if x.sum() > 10 * i + 100:
            break
        x, count = x * 1.2, count + 2
    return x, i, count


PROGRAMS: list[Program] = [
    _number_behind_it,
    _number_in_it,
    _other_bounds,
    _number_of_an_else,
    _goes_on_counting,
    _limit_moves,
]


def _calls() -> list[Call]:
    """Return calls that end the loops at once, later, and not at all."""
    given = ([1.0, 2.0, 3.0], [500.0, 0.1, 3.0], [1.5, 1.25, 1.0], [1e-5, 1e-6, 1e-7])
    return [call(torch.tensor(each)) for each in given]


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_loop_is_one_graph(program: Program, fullgraph: bool) -> None:
    found = assert_equivalent(lambda: program, _calls, fullgraph=fullgraph)
    assert "while_loop" in {site.lowering for site in found.report.sites}


@pytest.mark.parametrize("program", [_number_behind_it, _limit_moves, _number_of_an_else])
def test_with_inductor(program: Program) -> None:
    assert_equivalent(lambda: program, _calls, backend="inductor")


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [*PROGRAMS, _returned_in_it])
def test_whatever_becomes_of_it_in_training(program: Program, backend: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor([1.0, 0.5, 2.0]))

        def forward(self, x: Tensor) -> Any:
            return program(x * self.scale)

    assert_equivalent(
        Model, _calls, backend=backend, fullgraph=False, training=True, graphs=None, recompiles=None
    )


def test_a_loop_that_leaves_with_a_result() -> None:
    assert_equivalent(lambda: _returned_in_it, _calls, fullgraph=False, graphs=None)
