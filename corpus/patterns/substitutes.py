"""Calls that stock Dynamo cannot trace, and for which something equal is traced."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Variable

from corpus.patterns.pattern import (
    CALL,
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


DEPTH: ContextVar[int] = ContextVar("DEPTH", default=2)
LOCK = threading.Lock()


@pattern(signs, CALL)
def context_variable_set_and_reset() -> Program:
    def deeper(x: Tensor) -> Tensor:
        token = DEPTH.set(DEPTH.get() + 1)
        try:
            return x * DEPTH.get()
        finally:
            DEPTH.reset(token)

    def program(x: Tensor) -> tuple[Tensor, int]:
        token = DEPTH.set(5)
        y = deeper(deeper(x))
        DEPTH.reset(token)
        return y, DEPTH.get()

    return program


@pattern(signs, CALL, WHERE)
def context_variable_around_a_branch() -> Program:
    def program(x: Tensor) -> Tensor:
        token = DEPTH.set(4)
        y = x * DEPTH.get() if x.sum() > 0 else x - DEPTH.get()
        DEPTH.reset(token)
        return y * DEPTH.get()

    return program


@pattern(signs, CALL, UNEQUAL, because="Only where the branch is taken is the variable set.")
def context_variable_set_in_one_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        token = None
        if x.sum() > 0:
            token = DEPTH.set(7)
        y = x * DEPTH.get()
        if token is not None:
            DEPTH.reset(token)
        return y

    return program


@pattern(signs, CALL, training=False)
def deep_copy_of_a_structure() -> Program:
    def program(x: Tensor) -> tuple[Tensor, Any]:
        before = copy.deepcopy({"x": x, "parts": [x, (1, x * 2)]})
        x.mul_(3)
        return x + 1, before

    return program


@pattern(
    signs,
    CALL,
    training_outcome=(UNEQUAL,),
    because="Only a leaf that requires gradients can be copied deeply, to another leaf.",
)
def deep_copy_of_a_tensor() -> Program:
    def program(x: Tensor) -> Tensor:
        return copy.deepcopy(x) + x

    return program


@pattern(signs, CALL)
def flat_copies_of_containers() -> Program:
    def program(x: Tensor) -> tuple[Any, ...]:
        first = {"x": x}
        second = copy.copy(first)
        second["y"] = x * 2
        items = [x]
        more = copy.copy(items)
        more.append(x + 1)
        return first, second, len(items), more

    return program


@pattern(signs, CALL)
def flags_of_cudnn_on_the_cpu() -> Program:
    def program(x: Tensor) -> Tensor:
        with torch.backends.cudnn.flags(enabled=False):
            y = (x * 2).softmax(0)
        return y + x

    return program


@pattern(signs, CALL)
def lock_around_tensors() -> Program:
    def program(x: Tensor) -> Tensor:
        with LOCK:
            y = x * 2
        return y + 1

    return program


@pattern(signs, UNEQUAL, because="Other threads may see what is changed while the lock is held.")
def lock_around_a_counter() -> Any:
    class Net(nn.Module):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            with LOCK:
                self.calls += 1
            return x * 2

    return Net()


PATTERNS = patterns_among(list(vars().values()))
