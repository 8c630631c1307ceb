"""Calls that stock Dynamo cannot trace, and for which something equal is traced."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.autograd import Variable

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
from tests.equivalence import Call, call

Program = Callable[..., Any]

UNEQUAL = refused("no-equal-substitute")


@pattern(signs, CALL)
def variable_of_an_input() -> Program:
    def program(x: Tensor) -> tuple[Tensor, bool, Tensor]:
        y = Variable(x)
        return y * 2 + x, y is x, Variable(torch.zeros(3), requires_grad=False)

    return program


@pattern(signs, CALL)
def variable_that_shares_memory() -> Program:
    def program(x: Tensor) -> Tensor:
        h = x * 2
        y = Variable(h.detach())
        y.add_(1)
        return h.detach() + y

    return program


@pattern(signs, CALL, WHERE)
def variable_in_one_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            return Variable(x * 2) + x
        return x - 1

    return program


@pattern(signs, CALL)
def variable_of_a_parameter() -> Any:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x: Tensor) -> tuple[Tensor, bool, bool]:
            fixed = Variable(self.weight)
            return fixed * x + self.weight * x, fixed.requires_grad, fixed.is_leaf

    return Net()


@pattern(
    signs,
    UNEQUAL,
    graphs=None,
    because="`volatile` makes torch warn, from its own code.",
)
def variable_that_is_volatile() -> Program:
    def program(x: Tensor) -> Tensor:
        return Variable(x, volatile=True) * 2

    return program


class _Frozen(nn.Module):
    """Makes its input require gradients before its layers, as models with checkpoints do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = x[:, None]
        if self.training and not h.requires_grad:
            h.requires_grad = True
        return self.layer(h).relu()


def _plain_rows() -> list[Call]:
    return [call(torch.arange(1, 9).reshape(2, 4)), call(torch.arange(-8, 0).reshape(2, 4))]


@pattern(_plain_rows, training_outcome=(CALL,))
def gradients_wanted_of_an_intermediate() -> Any:
    class Net(_Frozen):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.float())

    return Net()


@pattern(
    _plain_rows,
    CALL,
    training_outcome=(UNEQUAL,),
    because="What is returned requires gradients for no other reason than the store.",
)
def gradients_wanted_of_what_is_returned() -> Program:
    def program(x: Tensor) -> Tensor:
        h = x.float()
        h.requires_grad = True
        return h * 2

    return program


@pattern(signs, CALL)
def gradients_wanted_where_they_flow() -> Program:
    def program(x: Tensor) -> tuple[Tensor, bool]:
        h = x * 2
        if h.requires_grad:
            h.requires_grad_()
        else:
            h.requires_grad = False
        return h.sum(), h.requires_grad

    return program


@pattern(signs, CALL)
def check_with_a_message_of_tensors() -> Program:
    def program(x: Tensor) -> Tensor:
        torch._check_with(ValueError, x.shape[0] == 3, lambda: f"{x.shape} has {x}")
        torch._check(x.dim() == 1, lambda: f"{x.shape}")
        return x * 2

    return program


@pattern(signs, CALL)
def check_that_the_data_decide() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        torch._check_with(KeyError, bool((y > -7).all()), lambda: f"{y.shape}: {y.min()}")
        torch._check_value(y.sum().item() > -5, lambda: f"{y.tolist()}")
        return y + 1

    return program


@pattern(signs, CALL, OUTPUT)
def check_of_a_tensor_behind_output() -> Program:
    def program(x: Tensor) -> Tensor:
        print("before", x)
        torch._check_tensor_all_with(IndexError, x > -4, lambda: f"small: {x}")
        print("behind")
        return x * 2

    return program


@pattern(signs, CALL)
def check_that_is_caught() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            torch._check_index(x.shape[0] == 4, lambda: f"{x.shape} is no four")
        except IndexError as error:
            return x * len(str(error))
        return x

    return program


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
