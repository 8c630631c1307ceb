"""Branches in loops, and loops that end on a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from corpus.patterns.pattern import COND, LOOP, WHERE, pattern, patterns_among, rows, signs

Program = Callable[..., Any]


@pattern(signs, WHERE)
def branch_in_a_range_loop() -> Program:
    def program(x: Tensor) -> Tensor:
        for step in range(3):
            if x.sum() > step:
                x = x - 1
            else:
                x = x + 3
        return x

    return program


@pattern(signs, WHERE, may_copy=True)
def continue_in_a_loop() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 1
        for factor in (2, 3, 4):
            if y.sum() < 0:
                continue
            y = y * factor - 1
        return y

    return program


@pattern(rows, COND, may_copy=True, zero_gradients=True)
def continue_in_a_loop_over_modules() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            x = x * 1
            for layer in self.layers:
                if x.sum() < 0:
                    continue
                x = layer(x)
            return x

    return Net()


@pattern(signs, WHERE)
def break_out_of_a_loop() -> Program:
    def program(x: Tensor) -> Tensor:
        for step in range(4):
            x = x + step
            if x.sum() > 3:
                break
        return x * 2

    return program


@pattern(signs, WHERE)
def return_out_of_a_loop() -> Program:
    def program(x: Tensor) -> Tensor:
        for step in range(4):
            x = x + step
            if x.sum() > 3:
                return x * 10
        return x * 2

    return program


@pattern(signs, LOOP, training=False)
def while_on_a_tensor() -> Program:
    def program(x: Tensor) -> Tensor:
        while x.sum() < 10:
            x = x + 1
        return x

    return program


@pattern(signs, WHERE)
def ternary_in_a_comprehension() -> Program:
    def program(x: Tensor) -> list[Tensor]:
        return [y * 2 if y.sum() > 0 else y - 1 for y in (x, x + 2, x - 3)]

    return program


PATTERNS = patterns_among(list(vars().values()))
