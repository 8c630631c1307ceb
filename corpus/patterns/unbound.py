"""Variables that have a value on some ways only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from corpus.patterns.pattern import (
    CHOICE,
    GUARD,
    NO_MERGE,
    SPLIT,
    WHERE,
    pattern,
    patterns_among,
    signs,
)

Program = Callable[..., Any]


@pattern(signs, GUARD, SPLIT)
def variable_bound_in_two_of_three_arms() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            y = x * 2
        elif x.min() < -3.5:
            y = x - 1
        return y + x

    return program


@pattern(signs, GUARD, SPLIT)
def variable_bound_by_one_of_two_tests() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            y = x * 2
        if x.min() < -3.5:
            y = x * 3
        return y + 1

    return program


@pattern(signs, WHERE)
def variable_that_only_training_reads() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weighs = False

        def forward(self, x: Tensor) -> Tensor:
            y = x * 2
            if x.sum() > 0:
                y = y + 1
                weight = y.mean()
            if self.weighs:
                y = y * weight
            return y

    return Net()


@pattern(signs, GUARD, SPLIT)  # the second test is made in both arms of the first
def two_variables_read_under_the_test_that_binds_them() -> Program:
    def program(x: Tensor) -> Tensor:
        positive = x.sum() > 0
        if positive:
            y = x * 2
            power = 3
        z = x + 1
        if positive:
            z = y**power
        return z

    return program


@pattern(signs, SPLIT)
def last_item_that_was_found() -> Program:
    def program(x: Tensor) -> Tensor:
        for index in range(3):
            if x[index] > 0:
                last = x[index] * 2
        return last + x

    return program


@pattern(signs, GUARD)
def variable_deleted_in_an_arm_and_read() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x + 1
        if x.sum() < 0:
            del y
        return x * y

    return program


@pattern(signs, WHERE)
def variable_deleted_in_an_arm_and_bound_again() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x + 1
        if x.sum() < 0:
            z = x * y
            del y
        else:
            z = x - y
        y = z + 1
        return y * z

    return program


@pattern(signs, GUARD, NO_MERGE)
def message_bound_by_an_earlier_test() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() < 0:
            message = "negative"
        if x.min() < -3.5:
            raise ValueError(message)
        return x * 2

    return program


@pattern(signs, GUARD)
def argument_of_a_call_that_may_be_unbound() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                features = self.layer(x)
            with torch.no_grad():
                scale = x.abs().mean()
            return torch.relu(features) * scale

    return Net()


@pattern(signs, CHOICE, training=False)
def none_or_a_tensor_where_a_third_arm_raises() -> Program:
    def program(x: Tensor, mode: int = 1) -> Tensor | None:
        if mode == 1:
            y = None
            if x.sum() > 0:
                y = x * 2
        elif x.min() < 0:
            y = x - 1
        return y

    return program


@pattern(signs, GUARD)
def shared_variable_bound_in_one_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            y = x * 2

        def reader() -> Tensor:
            return y + 1

        return reader()

    return program


@pattern(signs, WHERE)
def shared_variable_bound_in_arms_that_read_it_elsewhere() -> Program:
    def program(x: Tensor) -> Tensor:
        def reader() -> Tensor:
            return y + 1

        if x.sum() > 0:
            y = x * 2
            z = reader()
        else:
            y = x - 1
            z = reader() * 3
        return z + reader()

    return program


@pattern(signs, WHERE)
def mask_for_a_comprehension() -> Program:
    def program(x: Tensor) -> list[Tensor]:
        if x.sum() > 0:
            mask = x > 1
        else:
            mask = x < -1
        return [each * mask for each in (x, x + 1)]

    return program


PATTERNS = patterns_among(list(vars().values()))
