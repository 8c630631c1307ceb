"""Arguments of output that fail when they are made: the error comes where the statement stands."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from corpus.patterns.pattern import OUTPUT, WHERE, pattern, patterns_among, signs
from tests.equivalence import Call, call

Program = Callable[..., Any]

logger = logging.getLogger("corpus.patterns.arguments")
logger.setLevel(logging.INFO)


def _numbers() -> Sequence[Call]:
    """Vectors whose sum is a number, zero, infinite, and not a number."""
    last = (1.0, -3.0, math.inf, math.nan)
    return [call(torch.tensor([1.0, 2.0, each])) for each in last]


@pattern(_numbers, OUTPUT)
def division_by_a_number_that_may_be_zero() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stage = "new"
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            self.stage = "first"
            self.total.add_(x.detach())
            print("ratio", f"{1 / x.sum().item():.3f}")
            self.stage = "second"
            self.total.mul_(2)
            print("after")
            return x * 2

    return Net()


@pattern(signs, OUTPUT, WHERE)
def variables_bound_in_the_call() -> Any:
    class Net(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            print(
                "x", x := x + 1, "sum", total := x.sum(), f"{(mean := x.mean()).item():.2f}", total
            )
            logger.debug("never written %s", scaled := x * 2)
            x.add_(1)
            if total > 0:
                logger.info("positive %.2f", bound := total + mean)
                scaled = scaled + bound
            return scaled * total

    return Net()


@pattern(signs, OUTPUT)
def number_out_of_several() -> Any:
    class Net(torch.nn.Module):
        stage = "none"

        def forward(self, x: Tensor) -> Tensor:
            self.stage = "first"
            print("before")
            print(f"{x.item():.2f}")
            self.stage = "second"
            return x * 2

    return Net()


@pattern(_numbers, OUTPUT)
def whole_number_of_what_is_none() -> Program:
    def program(x: Tensor) -> Tensor:
        print("rounded", int(x.sum()), round(x[2].item()))
        logger.info("%d percent", int(x.sum().item() * 100))
        return x + 1

    return program


@pattern(_numbers, OUTPUT)
def failure_below_the_level() -> Program:
    def program(x: Tensor) -> Tensor:
        logger.debug("not shown %s", 1 / x.sum().item())
        logger.debug("nor this %.3f", x.sum().item())
        return x * 2

    return program


@pattern(_numbers, OUTPUT)
def failure_that_is_caught() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            print("inverse", 1 / x.sum().item())
        except ZeroDivisionError as error:
            print("none:", error)
            x = x + 1
        return x * 2

    return program


@pattern(_numbers, OUTPUT)
def failure_that_a_caller_catches() -> Program:
    def helper(x: Tensor) -> Tensor:
        logger.info("mean of %d", int(x.sum().item()))
        return x * 3

    def program(x: Tensor) -> Tensor:
        try:
            return helper(x)
        except (ValueError, OverflowError):
            logger.warning("not finite")
            return x

    return program


@pattern(_numbers, OUTPUT, WHERE)
def failure_in_an_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        if x[0] + x[1] + x[2] < 1:
            print("inverse", f"{1 / x.sum().item():.2f}")
            x = x * 2
        else:
            print(f"{int(x.sum().item()):d}")
        return x + 1

    return program


@pattern(_numbers, OUTPUT)
def failure_among_starred_arguments() -> Program:
    def program(x: Tensor) -> Tensor:
        print(*[round(each) for each in x.tolist()], sep=", ")
        print(*x.tolist(), 1 % x.sum().item(), sep=", ")
        return x + 1

    return program


@pattern(_numbers, OUTPUT)
def function_of_a_number_out_of_its_range() -> Program:
    def program(x: Tensor) -> Tensor:
        print(math.log(x.sum().item()), "and", math.sqrt(x[2].item()))
        print("%d" % x[2].item(), x.tolist()[2:][0])  # noqa: UP031
        return x + 1

    return program


@pattern(signs, OUTPUT)
def place_that_may_not_be_there() -> Program:
    def program(x: Tensor) -> Tensor:
        print("the last of", len(x), {1: "one", 3: "three"}[len(x)], x.tolist()[int(x.max())])
        return x * 2

    return program


PATTERNS = patterns_among(list(vars().values()))
