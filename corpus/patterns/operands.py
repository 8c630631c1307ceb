"""Conditions whose value is used, and ternaries with operands of an expression below them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpus.patterns.pattern import (
    CHOICE,
    COND,
    SPLIT,
    WHERE,
    pairs,
    pattern,
    patterns_among,
    rows,
    signs,
)
from tests.equivalence import Call, call

Program = Callable[..., Any]

VALUE = "the value of an `and` or `or` is not merged"
UNLIKE = "values without a common form are refused where the caller or a container has them"


def _scales() -> list[Call]:
    return [call(torch.tensor(each)) for each in ([2.0, -4.0], [0.0, 0.0], [float("nan"), 1.0])]


@pattern(_scales, WHERE)
def default_by_or() -> Program:
    def program(x: Tensor) -> Tensor:
        scale = x.abs().max() or torch.ones(())
        return x / scale

    return program


@pattern(_scales, SPLIT)
def number_as_default_by_or() -> Program:
    def program(x: Tensor) -> Tensor:
        scale = x.abs().max() or 1.0
        return x / scale

    return program


@pattern(signs, WHERE)
def two_flags_joined_and_tested_later() -> Program:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        usable = (x > -3).all() and (x.sum() > 0)
        y = x + 1
        if usable:
            y = y * 2
        return y, usable

    return program


@pattern(signs, CHOICE, WHERE)
def flags_joined_in_a_helper() -> Program:
    def is_clean(x: Tensor) -> Tensor:
        return torch.isfinite(x).all() and not (x < -2).any()

    def program(x: Tensor) -> Tensor:
        return x * 2 if is_clean(x) else x.clamp(min=-2)

    return program


@pattern(signs, CHOICE, SPLIT)
def or_of_three_in_a_call() -> Program:
    def program(x: Tensor) -> Tensor:
        return torch.add(x, (x[0] < 0) or (x[1] > 3) or x[2].abs(), alpha=2)

    return program


@pattern(rows, COND, zero_gradients=True)
def expert_chosen_between_operands() -> Any:
    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(4)
            self.small, self.large = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(x) + (self.small(x) if x.mean() > 0 else self.large(x)) * 0.5

    return Mixture()


@pattern(rows, WHERE)
def ternary_among_the_parts_of_a_concatenation() -> Program:
    def program(x: Tensor) -> Tensor:
        return torch.cat([x, x.flip(-1) if x.sum() > 0 else -x, x[:, :1]], dim=-1)

    return program


@pattern(signs, WHERE)
def ternary_as_a_keyword_of_a_call() -> Program:
    def program(x: Tensor) -> Tensor:
        return F.mse_loss(x + 1, target=x.detach() if x.sum() > 0 else x * 0, reduction="sum")

    return program


@pattern(signs, CHOICE, SPLIT)
def number_as_a_keyword_of_a_call() -> Program:
    def program(x: Tensor) -> Tensor:
        return F.leaky_relu(x, negative_slope=0.1 if x.sum() > 0 else 0.3)

    return program


@pattern(rows, SPLIT)
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


@pattern(rows, WHERE)
def ternary_indexed_at_once() -> Program:
    def program(x: Tensor) -> Tensor:
        return (x * 2 if x.sum() > 0 else x - 1)[:, 1:]

    return program


@pattern(signs, WHERE)
def ternary_as_the_receiver_of_a_method() -> Program:
    def program(x: Tensor) -> Tensor:
        return x.add((x if x.sum() > 0 else x.abs()).sub(1).mul(x), alpha=3)

    return program


@pattern(signs, WHERE)
def four_ternaries_in_a_row_of_operators() -> Program:
    def program(x: Tensor) -> Tensor:
        a, b = x.sum(), x.max()
        return (
            (x if a > 0 else -x)
            + (x * 2 if b > 2 else x * 3)
            - (x.exp() if a > b else x.cos()) * (x + 1 if b < 0 else x - 1)
        )

    return program


@pattern(signs, WHERE)
def ternary_unpacked() -> Program:
    def program(x: Tensor) -> Tensor:
        low, high = (x[0], x[1]) if x.sum() > 0 else (x[1], x[2] + 1)
        return torch.stack([low * 2, high - 1])

    return program


@pattern(signs, WHERE)
def ternary_stored_in_a_dictionary_display() -> Program:
    def program(x: Tensor) -> dict[str, Tensor]:
        return {"shift": x + 1, "scale": x * 2 if x.sum() > 0 else x * 3, "last": x[-1:] * 1}

    return program


@pattern(pairs, WHERE)
def ternary_as_condition_of_another() -> Program:
    def program(x: Tensor, y: Tensor) -> Tensor:
        return x * y if (x.sum() > 0 if y.sum() > 2 else x.sum() < 0) else y - x

    return program


@pattern(signs, WHERE)
def ternary_in_a_default_of_a_nested_function() -> Program:
    def program(x: Tensor) -> Tensor:
        def shifted(y: Tensor, by: Tensor = x * 2 if x.sum() > 0 else x - 1) -> Tensor:
            return y + by

        return shifted(x) * shifted(x + 1)

    return program


@pattern(signs, WHERE)
def augmented_by_a_ternary() -> Program:
    def program(x: Tensor) -> Tensor:
        total = x * 1
        total += x * 2 if x.sum() > 0 else x.abs()
        total *= x.mean() if x.max() > 2 else x.min()
        return total

    return program


PATTERNS = patterns_among(list(vars().values()))
