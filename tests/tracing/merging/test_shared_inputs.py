"""Inputs that share memory in one call and not in another, of which an arm changes one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.equivalence import assert_equivalent, call

Given = tuple[Tensor, Tensor]


def _apart() -> Given:
    return torch.zeros(3), torch.zeros(2)


def _first_is_behind() -> Given:
    memory = torch.zeros(3)
    return memory, memory[1:]


def _first_is_behind_elsewhere() -> Given:
    memory = torch.zeros(3)
    return memory, memory[:2]


def _side_by_side() -> Given:
    memory = torch.zeros(5)
    return memory[:3], memory[3:]


def _overlapping() -> Given:
    memory = torch.zeros(4)
    return memory[:3], memory[1:3]


def _the_same() -> Given:
    memory = torch.zeros(2)
    return memory, memory


WAYS = [
    _apart,
    _first_is_behind,
    _first_is_behind_elsewhere,
    _side_by_side,
    _overlapping,
    _the_same,
]


def changed_on_both_sides(x: Tensor, one: Tensor, other: Tensor) -> Any:
    if x.sum() > 0:
        other.add_(x)
    else:
        one.mul_(2)
    return one.sum() + other.sum()


def one_is_changed_and_another_read(x: Tensor, one: Tensor, other: Tensor) -> Any:
    y = x * 1
    if x.sum() > 0:
        one.add_(1)
        y = x + other
    return y + one.sum()


def read_behind(x: Tensor, one: Tensor, other: Tensor) -> Any:
    if x.sum() > 0:
        other.add_(1)
    return one * 2, other * 3


# Of the others AOTAutograd gets pieces where overlapping inputs break the graph: docs/upstream.md.
@pytest.mark.parametrize(
    ("program", "backend"),
    [
        (changed_on_both_sides, "eager"),
        (one_is_changed_and_another_read, "eager"),
        (read_behind, "eager"),
        (read_behind, "aot_eager"),
        (read_behind, "inductor"),
    ],
)
@pytest.mark.parametrize("first", WAYS, ids=lambda each: each.__name__)
def test_each_call_has_the_memory_that_it_is_given(
    program: Callable[..., Any], first: Callable[[], Given], backend: str
) -> None:
    ways: Sequence[Callable[[], Given]] = [first, *(each for each in WAYS if each is not first)]

    def calls() -> list[Any]:
        signs = (torch.ones(2), -torch.ones(2))
        return [call(x, *make()) for make in (*ways, first) for x in signs]

    assert_equivalent(
        lambda: program, calls, backend=backend, fullgraph=False, graphs=None, recompiles=None
    )


class Views(nn.Module):
    """Has a view of a tensor that one side replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = torch.zeros(3)
        self.part = self.whole[1:]

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            self.part.add_(x)
        else:
            self.whole = self.whole.clone()
        return self.whole.sum() + self.part.sum()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_tensor_is_replaced_of_which_there_is_a_view(backend: str) -> None:
    calls = [call(torch.full((2,), sign)) for sign in (1.0, -1.0, 1.0, 1.0)]
    assert_equivalent(Views, lambda: calls, backend=backend, graphs=None, recompiles=None)
