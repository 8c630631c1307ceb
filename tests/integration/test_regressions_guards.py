"""Programs of which a later call once got what had been compiled for an earlier one, or whose arms
once shared an object that each of them had to have for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tests.equivalence import Call, assert_equivalent, call

UP, DOWN = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-1.0, -2.0, 0.5])


def _numbers() -> Sequence[Call]:
    return [call(x.clone(), n) for n in (1, 2) for x in (UP, DOWN)]


def _pairs() -> Sequence[Call]:
    alone = [call(x.clone(), y.clone()) for x in (UP, DOWN) for y in (UP, DOWN)]
    same = UP.clone()
    return [call(same, same), *alone]


def test_a_number_that_only_a_form_that_was_given_up_has_looked_at() -> None:
    def make() -> Callable[..., Any]:
        def program(x: Tensor, n: int) -> Tensor:
            if x.sum() > 0:
                y = x + 1
            else:
                y = x[n:]
            return y * n

        return program

    assert_equivalent(make, _numbers, graphs=None, recompiles=None)


def test_two_arguments_that_are_one_tensor_in_the_first_call() -> None:
    def make() -> Callable[..., Any]:
        def program(x: Tensor, y: Tensor) -> list[Tensor]:
            if x.sum() > 0:
                rest = iter([x * 2, x * 3, y])
            else:
                rest = iter([y * 4, x, x])
            return [each * 2 for each in rest if each.sum() > 1]

        return program

    assert_equivalent(make, _pairs, graphs=None, recompiles=None)


def test_any_over_numbers_that_change() -> None:
    def make() -> Callable[..., Any]:
        def program(x: Tensor, n: int) -> Tensor:
            if x.sum() > 0:
                x = x * 2
            return x + 1 if any(each > n for each in (1, 2)) else x * 1

        return program

    assert_equivalent(make, _numbers, graphs=None, recompiles=None)


def test_an_iterator_that_an_arm_has_made_is_advanced_by_other_arms() -> None:
    def make() -> Callable[..., Any]:
        def program(x: Tensor, y: Tensor) -> list[Tensor]:
            found = [x, y]
            for _ in range(2):
                found = [each for each in found if each.sum() > 0]
            return found

        return program

    assert_equivalent(make, _pairs, fullgraph=False, graphs=None, recompiles=None)


def test_a_set_that_both_arms_have_made_is_added_to_in_an_arm() -> None:
    def make() -> Callable[..., Any]:
        def program(x: Tensor, y: Tensor) -> tuple[Tensor, set[int]]:
            kinds = {1, 2} if x.sum() > 0 else {2, 1}
            if y.sum() > 0:
                kinds.add(3)
            return len(kinds) * x, kinds

        return program

    assert_equivalent(make, _pairs, graphs=None, recompiles=None)
