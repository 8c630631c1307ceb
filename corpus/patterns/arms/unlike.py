"""Arms whose values have no common form: numbers, functions, shapes, types."""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpus.patterns.pattern import CHOICE, COND, SPLIT, WHERE, pattern, patterns_among, rows, signs

Program = Callable[..., Any]


Pair = namedtuple("Pair", ["first", "second"])


@pattern(signs, CHOICE)
def named_tuple_of_either_side_is_returned() -> Any:
    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            return Pair(x + 1, (x * 2).max(0).values)
        return Pair(x - 1, (x * 3).min(0).values)

    return program


@pattern(signs, SPLIT, from_3_12=(WHERE,))
def numbers_that_differ() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            scale = 2
        else:
            scale = 3
        return x * scale

    return program


@pattern(signs, CHOICE)
def dtypes_that_differ() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x * 2
        return (x - 1).double()

    return program


@pattern(rows, CHOICE)
def shapes_that_differ() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x * 2
        return x.sum(0)

    return program


@pattern(rows, CHOICE)
def strides_that_differ() -> Program:
    def program(x: Tensor) -> Tensor:
        square = x @ x.t()
        if x.sum() > 0:
            return square * 2
        return square.t()

    return program


@pattern(signs, CHOICE)
def containers_that_differ() -> Program:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        if x.sum() > 0:
            return (x * 2,)
        return x - 1, x

    return program


@pattern(signs, CHOICE)
def flag_set_by_a_branch() -> Program:
    def program(x: Tensor) -> tuple[Tensor, bool]:
        if x.sum() > 0:
            return x * 2, True
        return x - 1, False

    return program


@pattern(signs, CHOICE, SPLIT)
def number_as_a_keyword_of_a_call() -> Program:
    def program(x: Tensor) -> Tensor:
        return F.leaky_relu(x, negative_slope=0.1 if x.sum() > 0 else 0.3)

    return program


@pattern(rows, SPLIT, from_3_12=(WHERE,))
def index_by_a_ternary() -> Program:
    def program(x: Tensor) -> Tensor:
        return x[0 if x.sum() > 0 else 1] * 2

    return program


@pattern(rows, CHOICE, SPLIT)
def axis_by_a_ternary() -> Program:
    def program(x: Tensor) -> Tensor:
        square = x @ x.t()
        return square.softmax(dim=0 if x.sum() > 0 else -1) + 1

    return program


@pattern(signs, CHOICE)
def tuples_of_other_lengths() -> Program:
    def program(logits: Tensor) -> tuple[Tensor, ...]:
        loss = logits.square().mean()
        if loss > 5:
            return loss, logits
        return (loss,)

    return program


@pattern(signs, CHOICE)
def tuple_or_list() -> Program:
    def program(x: Tensor) -> tuple[Tensor, ...] | list[Tensor]:
        if x.sum() > 0:
            return x * 2, x + 1
        return [x - 1, x * 3]

    return program


@pattern(signs, CHOICE)
def verdict_as_a_string() -> Program:
    def program(x: Tensor) -> str:
        if (x > 0).all():
            return "positive"
        if (x < 0).all():
            return "negative"
        return "mixed"

    return program


@pattern(signs, CHOICE, WHERE)
def verdict_of_a_helper_that_returns_a_bool() -> Program:
    def diverged(x: Tensor) -> bool:
        if x.abs().max() > 3.5:
            return True
        return False

    def program(x: Tensor) -> Tensor:
        if diverged(x):
            return x * 0.1
        return x * 2

    return program


@pattern(rows, SPLIT)
def number_of_steps_chosen() -> Program:
    def program(x: Tensor) -> Tensor:
        steps = 3 if x.mean() > 0 else 1
        for step in range(steps):
            x = x * 0.5 + step
        return x

    return program


@pattern(rows, SPLIT, WHERE)
def number_of_columns_kept() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.std() > 0.6 and x.mean() > 0:
            k = 1
        else:
            k = 3
        values, _ = x.topk(k, dim=-1)
        return values.sum(-1) / k

    return program


@pattern(rows, SPLIT)
def axis_kept_in_a_variable() -> Program:
    def program(x: Tensor) -> Tensor:
        axis = 0
        if x.sum() > 0:
            axis = 1
        return (x - x.mean(dim=axis, keepdim=True)).cumsum(dim=axis)

    return program


@pattern(signs, SPLIT)
def key_of_a_dictionary_chosen() -> Any:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = nn.ModuleDict({"small": nn.ReLU(), "large": nn.Tanh()})

        def forward(self, x: Tensor) -> Tensor:
            name = "large" if x.abs().max() > 3 else "small"
            return self.heads[name](x) + 1

    return Heads()


@pattern(signs, CHOICE, SPLIT)
def index_into_a_list_of_constants() -> Program:
    slopes = [0.1, 0.5, 0.9]

    def program(x: Tensor) -> Tensor:
        level = 0
        if x.max() > 0:
            level += 1
        if x.sum() > 0:
            level += 1
        return x * slopes[level]

    return program


@pattern(signs, CHOICE)
def count_returned_beside_a_tensor() -> Program:
    def program(x: Tensor) -> tuple[Tensor, int]:
        retries = 0
        if x.min() < -2:
            x = x.clamp(min=-2)
            retries += 1
        if x.max() > 2:
            x = x.clamp(max=2)
            retries += 1
        return x * 2, retries

    return program


@pattern(signs, WHERE)
def boolean_set_and_tested_later() -> Program:
    def program(x: Tensor) -> Tensor:
        clipped = False
        y = x * 1
        if y.abs().max() > 3.5:
            y = y / y.abs().max()
            clipped = True
        y = y.exp()
        if clipped:
            y = y - 1
        return y

    return program


@pattern(signs, SPLIT)
def function_chosen_and_called() -> Program:
    def program(x: Tensor) -> Tensor:
        activation = torch.tanh if x.sum() > 0 else F.softplus
        return activation(x) * activation(x + 1)

    return program


@pattern(rows, SPLIT, zero_gradients=True)
def module_chosen_and_called() -> Any:
    class Router(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = nn.ModuleList((nn.Linear(4, 4), nn.Linear(4, 4)))

        def forward(self, x: Tensor) -> Tensor:
            expert = self.experts[0]
            if x.mean() < 0:
                expert = self.experts[1]
            return expert(x).relu()

    return Router()


@pattern(signs, SPLIT)
def partial_chosen_and_called() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            clip = functools.partial(torch.clamp, min=0.5, max=2.0)
        else:
            clip = functools.partial(torch.clamp, min=-2.0)
        return clip(x) + 1

    return program


@pattern(signs, CHOICE)
def integer_in_one_arm_and_float_in_the_other() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            y = x.argsort()
        else:
            y = x * 0.5
        return y + 1

    return program


@pattern(rows, SPLIT, from_3_12=(WHERE,))
def shapes_that_broadcast_later() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.mean() > 0:
            centre = x.mean()
        else:
            centre = x.mean(0, keepdim=True)
        return x - centre

    return program


@pattern(rows, SPLIT)
def longer_sequence_in_one_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        if x[:, -1].sum() > 0:
            x = torch.cat([x, x[:, :2]], dim=1)
        return x.softmax(-1).amax(-1)

    return program


@pattern(signs, SPLIT)
def precision_chosen() -> Program:
    def program(x: Tensor) -> Tensor:
        dtype = torch.float64 if x.abs().max() > 3.5 else torch.float32
        return x.to(dtype).cumsum(0).exp().float()

    return program


@pattern(rows, SPLIT)
def shape_chosen() -> Program:
    def program(x: Tensor) -> Tensor:
        size = (4, 2) if x.sum() > 0 else (8, 1)
        return x.reshape(size).amax(0).sum()

    return program


class Interval(NamedTuple):
    """Two ends."""

    low: Tensor
    high: Tensor


@pattern(signs, SPLIT)
def named_tuple_in_each_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            interval = Interval(x.min(), x.max())
        else:
            interval = Interval(x.mean() - 1, x.mean() + 1)
        return (x - interval.low) / (interval.high - interval.low)

    return program


@pattern(rows, COND, SPLIT, zero_gradients=True)
def depth_chosen_for_a_stack_of_layers() -> Any:
    class Adaptive(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            depth = 1 if x.mean() > 0 else 3
            for layer in self.layers[:depth]:
                x = layer(x) if x.sum() > 0 else layer(-x)
            return x

    return Adaptive()


PATTERNS = patterns_among(list(vars().values()))
