"""Output and checks between changes, random numbers and what may fail."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from corpus.patterns.pattern import (
    COND,
    GUARD,
    OUTPUT,
    WHERE,
    pattern,
    patterns_among,
    signs,
)
from tests.equivalence import Call, call

Program = Callable[..., Any]
logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)


def _indices() -> Sequence[Call]:
    return [call(torch.tensor(each)) for each in ([0, 2], [0, 7], [-1, -2])]


@pattern(signs, OUTPUT)
def print_between_changes_in_place() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x.detach().clone()
        for turn in range(3):
            print(turn, y, f"{y.max().item():.2f}")
            y.mul_(2)
        return x + y

    return program


@pattern(signs, GUARD, OUTPUT)
def check_between_random_numbers() -> Program:
    def program(x: Tensor) -> Tensor:
        noise = torch.rand(3)
        logger.info("noise %s", noise)
        if x.sum() < 0:
            raise ValueError(f"negative: {x.sum().item()}")
        print("more")
        return x + noise * torch.rand(3)

    return program


@pattern(signs, GUARD, OUTPUT)
def check_between_changes_of_a_module() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(3))
            self.calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            self.total.add_(x.detach())
            print("call", self.calls, self.total)
            if x.sum() < 0:
                raise ValueError(f"call {self.calls}", self.total.sum().item())
            self.total.zero_()
            self.calls += 1
            return x * 2

    return Net()


@pattern(_indices, GUARD, OUTPUT, training=False)
def check_that_protects_an_index() -> Program:
    def program(index: Tensor) -> Tensor:
        noise = torch.rand(3)
        print("index", index)
        if index.max() > 2:
            raise IndexError(f"{index.max().item()} is too large")
        found = noise[index]
        print("found", found.shape)
        return found

    return program


@pattern(signs, WHERE, OUTPUT)
def output_of_arms_at_its_place() -> Program:
    def program(x: Tensor) -> Tensor:
        print("begin")
        if x.sum() > 0:
            print("positive", x.detach() * 2)
            y = x + 1
        else:
            logger.info("negative")
            y = x - 1
        print("end")
        return y

    return program


@pattern(_indices, COND, OUTPUT, training=False)
def output_of_an_arm_that_may_fail() -> Program:
    def program(index: Tensor) -> Tensor:
        x = torch.arange(3.0)
        print("begin")
        y = x[:2]
        if index.sum() > 0:
            print("inside")
            y = x[index.clamp(max=2)]
        print("end")
        return y * 1

    return program


PATTERNS = patterns_among(list(vars().values()))
