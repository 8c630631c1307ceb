"""Branches on Python bools and numbers that are taken out of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from corpus.patterns.pattern import (
    CHOICE,
    GUARD,
    NO_MERGE,
    OUTPUT,
    WHERE,
    pairs,
    pattern,
    patterns_among,
)
from tests.equivalence import Call, call

Program = Callable[..., Any]


@pattern(pairs, WHERE)
def truth_by_the_method_equal() -> Program:
    def program(x: Tensor, y: Tensor) -> Tensor:
        if not x.equal(y):
            return x * y
        return x + y

    return program


@pattern(pairs, WHERE)
def truth_by_equal_of_other_sizes() -> Program:
    def program(x: Tensor, y: Tensor) -> Tensor:
        if torch.equal(x[:2], y) or torch.equal(x[:0], y[:0]):
            if torch.equal(x, y):
                return x * y
        return x + y

    return program


def _undefined() -> list[Call]:
    nan, infinity = float("nan"), float("inf")
    one = torch.tensor([1.0, nan, infinity])
    other = torch.tensor([1.0 + 1e-4, nan, infinity])
    return [call(one.clone(), one.clone()), call(one.clone(), other), call(one, -one)]


@pattern(_undefined, WHERE, training=False)
def truth_of_undefined_values() -> Program:
    def program(x: Tensor, y: Tensor) -> Tensor:
        z = x * 2
        if torch.equal(x, x):
            z = z + 1
        if torch.allclose(x, y, 1e-3, equal_nan=True):
            z = z + 2
        if x.allclose(y, rtol=1e-3):
            z = z + 4
        if x[1].item() == x[1].item():
            z = z + 8
        if x[1].item():
            z = z + 16
        return z

    return program


@pattern(pairs, CHOICE, WHERE)
def truth_by_is_nonzero() -> Program:
    def program(x: Tensor, y: Tensor) -> Tensor:
        if torch.is_nonzero(x.sum() - 6) and y[:1].is_nonzero():
            return x * y
        return x + y

    return program


@pattern(pairs, WHERE)
def truth_of_an_integer_out_of_a_tensor() -> Program:
    def program(x: Tensor, y: Tensor) -> Tensor:
        if int(x.sum()) == 6:
            return x * y
        return x + y

    return program


def _large() -> list[Call]:
    x = torch.tensor([1.0, 2.0])
    largest = 2**53
    return [call(x.clone(), torch.tensor(each)) for each in (largest + 1, largest - 1, largest)]


@pattern(_large, WHERE)
def truth_of_an_integer_past_the_doubles() -> Program:
    def program(x: Tensor, count: Tensor) -> Tensor:
        if count.item() > 9007199254740992.0:
            return x * 2
        if count.item() >= 9007199254740992:
            return x * 3
        return x + 1

    return program


@pattern(pairs, WHERE)
def truth_tested_many_times() -> Program:
    def program(x: Tensor, y: Tensor) -> Tensor:
        flag = (x > 2).any().item()
        if flag:
            x = x + 1
        z = x * y
        if not flag:
            z = z - 1
        return z * 2 if flag else z

    return program


@pattern(pairs, WHERE)
def truth_passed_to_a_nested_function() -> Program:
    def program(x: Tensor, y: Tensor) -> Tensor:
        def scaled(value: Tensor, flag: bool) -> Tensor:
            if flag:
                return value * 2
            return value - 1

        flag = (x > 2).any().item()
        return scaled(x, flag) + scaled(y, flag)

    return program


@pattern(pairs, WHERE, recompiles=2)
def truth_stored_on_the_module() -> Program:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.is_large = False

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            self.is_large = bool((x > 2).any())
            return self._scaled(x) * y

        def _scaled(self, x: Tensor) -> Tensor:
            if self.is_large:
                return x * 2
            return x - 1

    return Net()


@pattern(pairs, WHERE)
def truth_taken_before_a_change_in_place() -> Program:
    def program(x: Tensor, y: Tensor) -> Tensor:
        z = x * y
        total = z.sum().detach()
        number = total.item()
        total.add_(100)
        if number > 10:
            return z + total
        return z - total

    return program


@pattern(pairs, NO_MERGE, OUTPUT, training=False)
def truth_number_tested_and_printed() -> Program:
    def program(x: Tensor, y: Tensor) -> tuple[Tensor, float]:
        number = (x * y).sum().item()
        if number > 5:
            print("large:", number)
        return x + y, number

    return program


@pattern(pairs, GUARD)
def truth_by_equal_in_a_check() -> Program:
    def program(x: Tensor, y: Tensor) -> Tensor:
        if torch.equal(x, y):
            raise ValueError("equal", 3)
        return x * y

    return program


def _selections() -> list[Call]:
    return [call(torch.tensor(each)) for each in ([1.0, 1.0, 2.0], [1.0, 2.0, 3.0], [0.0] * 3)]


@pattern(_selections, WHERE, training=False)
def truth_of_a_count_of_unique_values() -> Program:
    def program(x: Tensor) -> Tensor:
        if len(x.unique()) > 2:
            return x * 2
        return x - 1

    return program


PATTERNS = patterns_among(list(globals().values()))
