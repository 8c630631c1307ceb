"""Branches that are refused, and whose conditions are computed in front of the graph then."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.equivalence import Call, assert_equivalent, call, fresh

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


class Chosen(nn.Module):
    """Draws which rows of a mask to take, or pads them with rows that it draws."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.most = most

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        rows = self.layer(x)
        taken = mask.nonzero()[:, 0]
        missing = self.most - mask.sum()
        found = []
        if missing <= 0:
            drawn = torch.multinomial(torch.ones(len(taken)), self.most)
            found.append(taken[drawn])
        else:
            drawn = torch.multinomial(torch.ones(len(rows)), int(missing), replacement=True)
            found.append(torch.cat([taken, drawn]))
        return rows[torch.cat(found)] * torch.rand([])


def _calls() -> list[Call]:
    masks = ([1, 1, 0, 1], [1, 0, 0, 0], [0, 1, 0, 0])
    return [call(torch.randn(4, 3), torch.tensor(each)) for each in masks]


@pytest.mark.parametrize("fullgraph", [True, False])
def test_arms_that_draw_what_cannot_be_drawn_before_them(fullgraph: bool) -> None:
    found = assert_equivalent(
        lambda: Chosen(2),
        _calls,
        training=True,
        graphs=None,
        recompiles=None,
        fullgraph=fullgraph,
    )
    assert found.graphs >= 2 or not fullgraph


class Told(nn.Module):
    """Changes an object of its caller in arms that draw."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.drawn: list[Any] = []

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        if mask.sum() > 1:
            self.drawn.append(torch.multinomial(torch.ones(3), 2))
        return self.layer(x)


def test_arms_that_change_what_is_not_of_the_call() -> None:
    assert_equivalent(
        Told, _calls, training=True, graphs=None, recompiles=None, fullgraph=False, may_copy=True
    )


def _first_or_all(x: Tensor, given: Tensor) -> Tensor:
    n = x
    if given[0] > 0 or given.all():  # with CPython 3.11, two jumps of one position
        n = x + 1
    return n * 2


def test_a_comparison_or_a_truth() -> None:
    given = [[1, 0, 0], [0, 0, 0], [-1, 2, 3], [0, 1, 1]]
    calls = lambda: [call(torch.arange(3.0), torch.tensor(each)) for each in given]  # noqa: E731
    assert_equivalent(lambda: fresh(_first_or_all), calls)
