"""Calls that Dynamo cannot trace: host random numbers, clocks, locks, copies."""

from __future__ import annotations

import copy
import functools
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.autograd import Variable

from corpus.patterns.pattern import (
    AHEAD,
    CALL,
    COND,
    OUTPUT,
    WHERE,
    pattern,
    patterns_among,
    refused,
    rows,
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
    changes_with=(2, 15),
    changed_outcome=(),
    because="What is returned requires gradients for no other reason than the store.",
)
def gradients_wanted_of_what_is_returned() -> Program:
    def program(x: Tensor) -> Tensor:
        h = x.float()
        h.requires_grad = True
        return h * 2

    return program


@pattern(signs, CALL, training_outcome=())
def gradients_wanted_where_they_flow() -> Program:
    def program(x: Tensor) -> tuple[Tensor, bool]:
        h = x * 2
        if h.requires_grad:
            h.requires_grad_()
        else:
            h.requires_grad = False
        return h.sum(), h.requires_grad

    return program


LOCK = threading.Lock()


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


@pattern(signs, UNEQUAL, because="Other threads may wait for what is done under the lock.")
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


@pattern(
    signs,
    AHEAD,
    CALL,
    graphs=2,
    recompiles=1,
    training_outcome=(UNEQUAL,),
    because="What gradients flow through is not computed in front of the graph, where the draw is.",
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


class Scaled:
    """Before 3.12 CPython holds a lock while such a property is computed."""

    @functools.cached_property
    def factor(self) -> int:
        return 3


@pattern(signs, WHERE)
def a_property_that_is_computed_once() -> Program:
    def program(x: Tensor) -> tuple[Tensor, Scaled]:
        scaled = Scaled()
        if x.sum() > 0:
            x = x + 1
        return x * scaled.factor * scaled.factor, scaled

    return program


def spans(shape: tuple[int, int], lengths: Tensor, width: int) -> Any:
    """Return a mask of spans at random places, as many in each row as its length allows."""
    mask = numpy.zeros(shape, dtype=bool)
    extra = numpy.random.rand(1).item()
    for row, length in enumerate(lengths.tolist()):
        count = max(1, int(length / (2 * width) + extra))
        starts = numpy.random.choice(numpy.arange(length - width + 1), count, replace=False)
        for start in starts:
            mask[row, start : start + width] = True
    return mask


def _lengths() -> list[Call]:
    x = torch.arange(16.0).reshape(2, 8)
    return [call(x.clone(), torch.tensor(each)) for each in ([8, 6], [4, 8], [8, 8], [3, 5])]


@pattern(_lengths, CALL)
def spans_that_are_drawn_on_the_host() -> Program:
    def program(x: Tensor, lengths: Tensor) -> Tensor:
        mask = torch.tensor(spans((2, 8), lengths, 2), dtype=torch.bool)
        return torch.where(mask, x * 0, x * 3) + torch.rand(8)

    return program


@pattern(_lengths, CALL, OUTPUT, graphs=1)
def spans_that_may_fail_on_the_host() -> Program:
    def program(x: Tensor, lengths: Tensor) -> Tensor:
        print("lengths", lengths)
        mask = torch.from_numpy(spans((2, 8), lengths, 4))  # the last call has too short a row
        return x * mask

    return program


def first_places(kept: Tensor) -> Any:
    """Return an array of data-dependent length."""
    found = kept.tolist()
    return numpy.array([place for place in range(len(found)) if found[place] > 0])


@pattern(signs, CALL, from_3_12=(CALL, refused("arms-differ")))
def an_array_whose_shape_depends_on_data() -> Program:
    def program(x: Tensor) -> Tensor:
        return x[torch.from_numpy(first_places(x.detach()))] * 2

    return program


@pattern(rows, CALL)
def a_tensor_of_an_array() -> Program:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        array = numpy.random.permutation(4)
        return x * torch.tensor(array), torch.tensor(array, dtype=torch.float64) + x

    return program


PATTERNS = patterns_among(list(vars().values()))
