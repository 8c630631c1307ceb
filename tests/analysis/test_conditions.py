"""Which loops are taken for loops over a range up to a number out of a tensor."""

from __future__ import annotations

from typing import Any

import pytest

from bcmend.analysis.conditions import may_be_open
from bcmend.analysis.facts import facts_of
from bcmend.codeobj.decode import decode


def _open_loops(function: Any) -> list[bool]:
    facts = facts_of(decode(function.__code__))
    loops = [i for i, each in enumerate(facts.instructions) if each.op == "FOR_ITER"]
    return [may_be_open(facts, loop) for loop in loops]


def _number(x: Any) -> None:
    for _ in range(int(x)):
        pass


def _item(x: Any) -> None:
    for _ in range(x.max().item()):
        pass


def _in_a_variable(x: Any) -> None:
    count = x.sum().item()
    limits = range(2, count + 1, 3)
    for _ in limits:
        pass


def _counted_up(x: Any) -> None:
    count = 0
    count = count + 1
    count = count + int(x)
    count = count * 2
    for _ in range(count):
        pass


@pytest.mark.parametrize("function", [_number, _item, _in_a_variable, _counted_up])
def test_a_loop_that_may_be_open_is_found(function: Any) -> None:
    assert _open_loops(function) == [True]


def _of_a_list(x: Any) -> None:
    for _ in [int(x)]:
        pass


def _of_a_length(x: Any) -> None:
    for _ in range(len(x)):
        pass


def _of_a_size(x: Any) -> None:
    for _ in range(x.shape[0] // 2):
        pass


def _of_another_function(x: Any) -> None:
    for _ in reversed(int(x)):  # type: ignore[call-overload]
        pass


def _of_an_argument(turns: int) -> None:
    for _ in range(turns):
        pass


@pytest.mark.parametrize(
    "function", [_of_a_list, _of_a_length, _of_a_size, _of_another_function, _of_an_argument]
)
def test_any_other_loop_is_not(function: Any) -> None:
    assert _open_loops(function) == [False]


def test_variables_that_are_made_of_each_other_are_followed_once() -> None:
    lines = ["def function(x):", " a = b = x"]
    lines += [f" a = a + b * {i}; b = b * a" for i in range(60)]
    lines += [" for _ in range(a + b): pass"]
    names: dict[str, Any] = {}
    exec("\n".join(lines), names)
    assert _open_loops(names["function"]) == [False]
