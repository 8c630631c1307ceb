"""Conditions on random numbers that are the same for every number that may be drawn."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bcmend
from bcmend.tracing.entry import draw_ranges
from tests.equivalence import assert_equivalent, call


class Skipping(nn.Module):
    """Skips layers at random, and keeps a list that is longer by one for each that is run."""

    def __init__(self, chance: float, skips: Callable[[Any, float], Any]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))
        self.chance = chance
        self.skips = skips

    def forward(self, x: Tensor) -> tuple[Any, ...]:
        kept = []
        for layer in self.layers:
            if self.skips(torch.rand([]), self.chance):
                continue
            x = layer(x)
            kept.append(x * 2)
        return x, tuple(kept), torch.rand(2)


def _graphs(program: Callable[[], Any]) -> list[str]:
    """Return the code of the graphs of a call that is compiled."""
    found: list[str] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        found.append(graph.print_readable(print_output=False))
        return graph.forward

    mended = bcmend.patch(program())
    torch.compile(mended, backend=backend)(torch.ones(2, 3))
    return found


@pytest.mark.parametrize(
    ("chance", "skips"),
    [
        (0.0, lambda drawn, chance: drawn < chance),
        (1.0, lambda drawn, chance: drawn < chance),
        (-0.5, lambda drawn, chance: drawn <= chance),
        (1.0, lambda drawn, chance: chance <= drawn),
        (0, lambda drawn, chance: not drawn >= chance),
        (0.0, lambda drawn, chance: drawn.lt(chance)),
        (0.0, lambda drawn, chance: drawn.item() < chance),
        (0.0, lambda drawn, chance: torch.logical_not(drawn >= chance)),
        (0.0, lambda drawn, chance: torch.rand_like(drawn) < chance),
    ],
)
@pytest.mark.parametrize("training", [False, True])
def test_what_no_number_decides_is_one_side(
    chance: float, skips: Callable[[Any, float], Any], training: bool
) -> None:
    comparison = assert_equivalent(
        lambda: Skipping(chance, skips), lambda: [call(torch.ones(2, 3))], training=training
    )

    assert comparison.graphs == 1


def test_the_other_side_is_not_in_the_graph() -> None:
    graph, *others = _graphs(lambda: Skipping(0.0, lambda drawn, chance: drawn < chance))

    assert not others
    assert graph.count(" = torch.rand(") >= 3
    assert "cond" not in graph.replace("_cmend_condition", "")
    assert "where" not in graph


def test_a_chance_above_zero_decides_nothing() -> None:
    def program() -> Callable[[Tensor], Tensor]:
        def run(x: Tensor) -> Tensor:
            return x + 1 if torch.rand([]) < 1e-3 else x - 1

        return run

    assert assert_equivalent(program, lambda: [call(torch.ones(3))]).graphs == 1
    assert "where" in _graphs(program)[0]


def test_numbers_changed_in_place_may_be_others() -> None:
    def program() -> Callable[[Tensor], Tensor]:
        def run(x: Tensor) -> Tensor:
            drawn = torch.rand([])
            drawn.sub_(1)
            return x + 1 if drawn < 0 else x - 1

        return run

    assert assert_equivalent(program, lambda: [call(torch.ones(3))]).graphs == 1


def test_a_branch_in_a_branch() -> None:
    def program() -> Callable[[Tensor], Tensor]:
        def run(x: Tensor) -> Tensor:
            drawn = torch.rand([])
            if x.sum() > 0:
                if drawn < 0.0:
                    return x.new_zeros(7)
                return x * 2
            return x * 3

        return run

    inputs = lambda: [call(torch.ones(3)), call(-torch.ones(3))]  # noqa: E731
    assert assert_equivalent(program, inputs).graphs == 1


class Asking(nn.Module):
    """Asks, in an arm that is always taken, whether a mask selects something."""

    def __init__(self) -> None:
        super().__init__()
        self.chance = 0.0

    def forward(self, x: Tensor) -> Tensor:
        is_any = (x > 0).flatten().any().item()
        for _ in range(2):
            if self.training and torch.rand([]) < self.chance:
                continue
            x = self.one_layer(x, is_any)
        return x

    def one_layer(self, x: Tensor, is_any: bool) -> Tensor:
        y = x * 2
        if is_any:
            y = y + x[x > 0].sum()
        return y - 1


def test_a_break_in_the_side_that_is_taken_is_none_of_the_branch() -> None:
    comparison = assert_equivalent(
        Asking,
        lambda: [call(torch.ones(2, 3)), call(-torch.ones(2, 3))],
        training=True,
        graphs=None,
        recompiles=None,
    )

    assert comparison.report is not None
    assert not comparison.report.refused


@pytest.mark.parametrize(
    ("name", "bound", "truth"),
    [
        ("lt", 0, False),
        ("lt", 1e-60, None),
        ("lt", 1, True),
        ("lt", 0.5, None),
        ("le", 0, None),
        ("le", -1e-60, None),
        ("le", -0.1, False),
        ("le", 1, True),
        ("gt", 0, None),
        ("gt", -0.1, True),
        ("gt", 1, False),
        ("ge", 0, True),
        ("ge", 1, False),
        ("ge", 1 - 1e-12, None),
        ("lt", math.nan, None),
        ("ge", math.inf, False),
    ],
)
def test_bounds(name: str, bound: float, truth: bool | None) -> None:
    assert draw_ranges._for_all(name, bound, torch.float32) is truth
