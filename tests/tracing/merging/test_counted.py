"""Numbers that sides of branches count in attributes, items and variables, and read again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.equivalence import assert_equivalent, call

total = 0


class _Counting(nn.Module):
    """Counts the turns of a loop in which a condition holds."""

    def __init__(self, count: Callable[[Any, Tensor], object], turns: int) -> None:
        super().__init__()
        self.count, self.turns = count, turns
        self.number, self.rate = 0, 0.5
        self.table, self.items = {"number": 0, "other": 7}, [0, 1.5]

    def forward(self, x: Tensor) -> Any:
        for turn in range(self.turns):
            if x.sum() > turn:
                self.count(self, x)
            x = x + 1
        return x, self.number, self.rate, self.table, self.items


def _attribute(self: Any, x: Tensor) -> None:
    self.number += 1


def _attribute_twice(self: Any, x: Tensor) -> None:
    self.number += 2
    self.number = self.number - 1


def _rate(self: Any, x: Tensor) -> None:
    self.rate = self.rate * 1.5


def _both(self: Any, x: Tensor) -> None:
    self.number += 1
    self.rate -= 0.25


def _item_of_a_dictionary(self: Any, x: Tensor) -> None:
    self.table["number"] += 1


def _item_of_a_list(self: Any, x: Tensor) -> None:
    self.items[0] += 3


def _all(self: Any, x: Tensor) -> None:
    self.number += 1
    self.table["number"] += self.number
    self.items[0] = self.table["number"] * 2


COUNTS = [
    _attribute,
    _attribute_twice,
    _rate,
    _both,
    _item_of_a_dictionary,
    _item_of_a_list,
    _all,
]


def _calls() -> list[Any]:
    rows = ([0.5, 0.5], [-3.0, 1.0], [5.0, 5.0], [0.0, 0.0], [-9.0, 0.0], [2.0, 0.5])
    return [call(torch.tensor(each)) for each in rows]


@pytest.mark.parametrize("turns", [2, 6])
@pytest.mark.parametrize("count", COUNTS, ids=lambda each: each.__name__.strip("_"))
def test_a_number_that_turns_of_a_loop_count(count: Any, turns: int) -> None:
    assert_equivalent(
        lambda: _Counting(count, turns), _calls, fullgraph=False, graphs=None, recompiles=None
    )


class _Clipped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.number, self.rate, self.table = 0, 0.5, {"number": 0}

    def forward(self, x: Tensor) -> Any:
        for turn in range(6):
            if x.sum() > turn:
                self.number += 1
                self.rate -= 0.25
                self.table["number"] += 2
            x = x + 1
        return x, self.number


def test_turns_that_count_are_one_graph() -> None:
    """As many nodes for each turn: seven traces of 54,000 steps, and no graph, once."""
    assert_equivalent(_Clipped, _calls, graphs=None, recompiles=None)


def test_a_global_variable() -> None:
    def program(x: Tensor) -> Tensor:
        global total
        for turn in range(5):
            if x.sum() > turn:
                total += 1
            x = x + 1
        return x * total

    def make() -> Any:
        global total
        total = 0
        return program

    assert_equivalent(make, _calls, graphs=None, recompiles=None)


def test_a_variable_of_a_closure() -> None:
    def make() -> Callable[[Tensor], Any]:
        number = 0

        def program(x: Tensor) -> Any:
            nonlocal number
            for turn in range(5):
                if x.sum() > turn:
                    number += 1
                x = x + 1
            return x, number

        return program

    assert_equivalent(make, _calls, graphs=None, recompiles=None)


def test_what_is_counted_is_shown_and_compared() -> None:
    def count(self: Any, x: Tensor) -> None:
        self.number += 1
        if self.number > 2:
            self.rate = 0.0
            print("more than two:", self.number)

    assert_equivalent(
        lambda: _Counting(count, 4), _calls, fullgraph=False, graphs=None, recompiles=None
    )
