"""What turns of a loop choose, or a variable has, is what something else holds, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.equivalence import Call, assert_equivalent, call

_Program = Callable[[Tensor], Any]


def _asked_which_it_is(x: Tensor) -> Any:
    one, other = [0], [0]
    chosen = one
    for _ in range(2):
        if x.sum() > 2:
            chosen = other
    return x + 1, chosen is other, chosen is one


def _taken_from_a_variable(x: Tensor) -> Any:
    one, other = [0], [0]
    chosen = one
    for _ in range(2):
        one = other
        if x.sum() > 2:
            chosen = one
    return x + 1, one is other, other is chosen, chosen is one


def _dictionary_changed_behind(x: Tensor) -> Any:
    one, other = {"k": 0}, {"k": 0}
    chosen = one
    for turn in range(2):
        if x.sum() > 2 + turn:
            chosen = other
    chosen["k"] = 5
    return x + 1, one["k"], other["k"]


def _new_on_one_side(x: Tensor) -> Any:
    one, other = [x], [x + 1]
    chosen = one
    for turn in range(3):
        chosen = other if x.sum() > 2 + turn else [x * 2]
    chosen.append(x)
    return x + 1, len(one), len(chosen), len(other), chosen[0]


class _Holder:
    items: list[int]


def _held_by_an_attribute(x: Tensor) -> Any:
    holder = _Holder()
    holder.items = chosen = [0]
    for turn in range(3):
        x = x * 1.1
        if x.sum() > 2 + turn:
            chosen = [0]
    chosen.append(7)
    return x, holder.items, chosen is holder.items, len(chosen)


def _held_by_a_tuple(x: Tensor) -> Any:
    chosen = [0]
    kept = (chosen, 1)
    for turn in range(3):
        x = x * 1.1
        if x.sum() > 2 + turn:
            chosen = [0]
    return x, kept[0] is chosen


def _of_the_loop_alone(x: Tensor) -> Any:
    best = [x, 0]
    for turn in range(3):
        x = x * 1.1
        if x.sum() > 2 + turn:
            best = [x, turn]
    return best


def _generated(value: Any) -> Iterator[Any]:
    yield 0
    yield value


def _a_tensor_in_the_frame_of_a_generator(x: Tensor) -> Any:
    total: Any = 0
    if x.sum() > 2:
        total = x * 2
    held = _generated(total)
    next(held)
    total += x
    return total + 0, next(held) + 0


def _a_tensor_of_a_loop_in_the_frame_of_a_generator(x: Tensor) -> Any:
    total: Any = 0
    for turn in range(3):
        if x.sum() > turn:
            total = total + x
    held = _generated(total)
    next(held)
    total += x
    return total + 0, next(held) + 0


PROGRAMS = [
    _asked_which_it_is,
    _taken_from_a_variable,
    _dictionary_changed_behind,
    _new_on_one_side,
    _held_by_an_attribute,
    _held_by_a_tuple,
    _of_the_loop_alone,
    _a_tensor_in_the_frame_of_a_generator,
    _a_tensor_of_a_loop_in_the_frame_of_a_generator,
]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_container_is_that_one(program: _Program, training: bool) -> None:
    def calls() -> list[Call]:
        return [call(torch.tensor(each)) for each in ([20.0], [-1.0], [2.5], [5.0])]

    assert_equivalent(lambda: program, calls, training=training)
