"""Numbers of Python and numpy, seeds and clocks, which each call has afresh."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from corpus.patterns.pattern import (
    CALL,
    COND,
    GUARD,
    OUTPUT,
    WHERE,
    pattern,
    patterns_among,
    refused,
    signs,
)

Program = Callable[..., Any]

UNEQUAL = refused("no-equal-substitute")


@pattern(signs, CALL)
def a_number_of_python_is_drawn() -> Program:
    def program(x: Tensor) -> tuple[Tensor, float]:
        scale = random.random()
        return x * scale + random.choice([1, 2, 3]), scale

    return program


@pattern(signs, CALL, WHERE)
def a_branch_on_a_number_of_python() -> Program:
    def program(x: Tensor) -> Tensor:
        if random.random() < 0.5:
            x = x * 2
        if random.uniform(0, 1) < 0.5:
            x = x + 1
        return x * 3

    return program


@pattern(signs, CALL, training_outcome=(COND, CALL), may_copy=True, zero_gradients=True)
def layer_drop_by_a_number_of_python() -> Any:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            x = x * 1
            for layer in self.layers:
                chance = random.uniform(0, 1)
                if self.training and chance < 0.5:
                    continue
                x = layer(x)
            return x

    return Net()


@pattern(signs, CALL, OUTPUT)
def numbers_of_numpy_between_output() -> Program:
    def program(x: Tensor) -> Tensor:
        print("drawn", numpy.random.uniform(1, 2))
        noise = torch.from_numpy(numpy.random.randn(3)).float()
        print("noise", noise)
        return x * noise * numpy.random.randint(1, 9)

    return program


@pattern(signs, CALL, GUARD)
def a_check_behind_a_draw() -> Program:
    def program(x: Tensor) -> Tensor:
        chance = random.random()
        if x.sum() < 0:
            raise ValueError(f"drawn {chance}, then {random.random()}")
        return x * chance

    return program


@pattern(
    signs,
    UNEQUAL,
    because="Eager execution draws only where the branch is taken; nothing may be drawn before it.",
)
def a_number_of_python_in_one_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x * random.random()
        return x - 1

    return program


@pattern(signs, CALL)
def seeds_before_draws() -> Program:
    def program(x: Tensor) -> Tensor:
        torch.manual_seed(3)
        random.seed(4)
        return x * torch.rand(3) + random.random()

    return program


@pattern(signs, UNEQUAL, because="The seed would come before the numbers that are drawn before it.")
def a_seed_behind_draws() -> Program:
    def program(x: Tensor) -> Tensor:
        noise = torch.rand(3)
        torch.manual_seed(3)
        return x * torch.rand(3) + noise

    return program


@pattern(signs, CALL, OUTPUT)
def time_that_a_part_takes() -> Program:
    def program(x: Tensor) -> tuple[Tensor, bool]:
        started = time.perf_counter()
        y = (x[:, None] * x).sum()
        elapsed = time.perf_counter() - started
        print(f"took {elapsed // 60:.0f} minutes")
        return y, elapsed > 0

    return program


PATTERNS = patterns_among(list(vars().values()))
