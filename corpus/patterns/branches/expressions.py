"""`and`, `or`, `not`, chained comparisons and conditional expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpus.patterns.pattern import (
    CHOICE,
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


@pattern(signs, WHERE)
def ternary() -> Program:
    def program(x: Tensor) -> Tensor:
        return x * 2 if x.sum() > 0 else x - 1

    return program


@pattern(signs, WHERE)
def ternary_between_operands() -> Program:
    def program(x: Tensor) -> Tensor:
        return x + (x * 2 if x.sum() > 0 else x - 1) * 3

    return program


@pattern(signs, WHERE)
def ternary_inside_a_call() -> Program:
    def program(x: Tensor) -> Tensor:
        return torch.add(x, x * 2 if x.sum() > 0 else x + 5, alpha=2)

    return program


@pattern(signs, WHERE)
def nested_ternaries() -> Program:
    def program(x: Tensor) -> Tensor:
        return x * 2 if x.sum() > 0 else (x - 1 if x.min() < -3 else x * 7)

    return program


@pattern(signs, WHERE)
def two_ternaries_in_one_display() -> Program:
    def program(x: Tensor) -> list[Tensor]:
        return [x * 2 if x.sum() > 0 else x - 1, x + 1 if x.max() > 0 else x - 2]

    return program


@pattern(signs, WHERE)
def condition_negated() -> Program:
    def program(x: Tensor) -> Tensor:
        if not x.sum() > 0:
            y = x * 2
        else:
            y = x - 1
        return y

    return program


@pattern(signs, WHERE)
def condition_with_and() -> Program:
    def program(x: Tensor) -> Tensor:
        if (x > 0).any() and (x < 0).any():
            y = x * 2
        else:
            y = x - 1
        return y

    return program


@pattern(signs, WHERE)
def condition_with_or() -> Program:
    def program(x: Tensor) -> Tensor:
        if (x > 2).any() or (x < -3).any():
            y = x * 2
        else:
            y = x - 1
        return y

    return program


@pattern(signs, WHERE)
def condition_with_and_or_not() -> Program:
    def program(x: Tensor) -> Tensor:
        if (x.sum() > 0 and not (x > 2).any()) or (x.min() < -3 and x.max() < 2):
            return x * 2
        return x - 1

    return program


def _half() -> list[Call]:
    values = ([1.0, 2.0, 3.0], [1.0, float("inf"), 3.0], [1.0, float("nan"), 3.0])
    return [call(torch.tensor(each, dtype=torch.float16)) for each in values]


@pattern(_half, WHERE, may_copy=True)
def clamp_of_half_precision() -> Program:
    def program(hidden: Tensor) -> Tensor:
        hidden = hidden + 1
        if hidden.dtype == torch.float16 and (
            torch.isinf(hidden).any() or torch.isnan(hidden).any()
        ):
            limit = torch.finfo(hidden.dtype).max - 1000
            hidden = torch.clamp(hidden, min=-limit, max=limit)
        return hidden

    return program


@pattern(signs, WHERE)
def chained_comparison() -> Program:
    def program(x: Tensor) -> Tensor:
        if 0 < x.sum() < 100:
            return x * 2
        return x - 1

    return program


@pattern(signs, WHERE, may_copy=True)
def value_of_and() -> Program:
    def program(x: Tensor) -> Tensor:
        return (x.sum() > 0) and (x.max() > 2)

    return program


def _half_rows() -> list[Call]:
    finite = torch.arange(8.0).reshape(2, 4).half() / 8
    large, broken = finite.clone(), finite.clone()
    large[0, 1], broken[1, 2] = float("inf"), float("nan")
    return [call(finite), call(large), call(broken), call(finite.float())]


@pattern(_half_rows, WHERE, may_copy=True, graphs=2, recompiles=1)
def overflow_clamped_after_each_layer() -> Any:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain = nn.Parameter(torch.linspace(0.5, 1.5, 4))

        def forward(self, hidden_states: Tensor) -> Tensor:
            residual = hidden_states
            hidden_states = residual + hidden_states * self.gain.to(hidden_states.dtype)
            if hidden_states.dtype == torch.float16 and (
                torch.isinf(hidden_states).any() or torch.isnan(hidden_states).any()
            ):
                clamp_value = torch.finfo(hidden_states.dtype).max - 1000
                hidden_states = torch.clamp(hidden_states, min=-clamp_value, max=clamp_value)
            return hidden_states

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Layer() for _ in range(2))

        def forward(self, hidden_states: Tensor) -> Tensor:
            for layer in self.layers:
                hidden_states = layer(hidden_states)
            return hidden_states

    return Encoder()


@pattern(signs, WHERE)
def score_between_two_thresholds() -> Any:
    class Gate(nn.Module):
        low, high = -3.0, 3.0

        def forward(self, x: Tensor) -> Tensor:
            score = x.sum()
            if self.low <= score <= self.high:
                return x * torch.sigmoid(score)
            return x - score

    return Gate()


@pattern(signs, WHERE)
def chained_comparison_negated_within_and() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.shape[0] > 1 and not -5.0 < x.min() < x.max() < 2.0:
            x = x / x.abs().max()
        return x + 1

    return program


@pattern(signs, WHERE)
def chained_comparison_as_a_loop_condition_of_many() -> Program:
    def program(x: Tensor) -> Tensor:
        weight = x * 0
        for low, high in ((-10, -4), (-4, 0), (0, 10)):
            weight = weight + (x.abs() if low <= x.sum() < high else x * low)
        return weight

    return program


def _masks() -> list[Call]:
    x = torch.tensor([0.5, -1.0, 2.0])
    chosen = ([True, False, True], [False, False, False], [True, True, True])
    return [call(x.clone(), torch.tensor(each)) for each in chosen]


@pattern(signs, WHERE)
def truth_of_an_integer_tensor_negated() -> Program:
    def program(x: Tensor) -> Tensor:
        negatives = (x < 0).sum()
        if not negatives:
            return x.log()
        return x.abs() * negatives

    return program


@pattern(_masks, WHERE)
def mask_tested_for_none_and_then_for_content() -> Program:
    def program(x: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is not None and mask.dtype == torch.bool and not mask.all():
            x = x.masked_fill(~mask, -1e4)
        return x.softmax(0)

    return program


@pattern(signs, WHERE)
def any_of_several_tensors() -> Program:
    def program(x: Tensor) -> Tensor:
        parts = (x, x * 2, x - 5)
        if any(torch.isnan(part).any() or part.sum() < -10 for part in parts):
            return x * 0
        return x * 2

    return program


@pattern(signs, WHERE)
def six_conditions_joined() -> Program:
    def program(x: Tensor) -> Tensor:
        a, b, c = x[0], x[1], x[2]
        if (a > 0 and b > 0 and a < b) or (not a > -2 and not (b > 0 or c > 0)):
            return x * a
        return x + b

    return program


def _moments() -> list[Call]:
    steps = ([3, 4], [4, 4], [7, 2])
    return [call(torch.tensor([1.0, -2.0]), *map(torch.tensor, each)) for each in steps]


@pattern(_moments, WHERE)
def schedule_by_a_step_tensor() -> Program:
    def program(x: Tensor, step: Tensor, every: Tensor) -> Tensor:
        if step % every == 0:
            x = x * 0.1
        if step > 5 or step == 3:
            x = x + 1
        return x

    return program


def _scales() -> list[Call]:
    return [call(torch.tensor(each)) for each in ([2.0, -4.0], [0.0, 0.0], [float("nan"), 1.0])]


@pattern(_scales, WHERE)
def default_by_or() -> Program:
    def program(x: Tensor) -> Tensor:
        scale = x.abs().max() or torch.ones(())
        return x / scale

    return program


@pattern(_scales, CHOICE)
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


@pattern(signs, CHOICE, SPLIT, from_3_12=(CHOICE, SPLIT, WHERE))
def or_of_three_in_a_call() -> Program:
    def program(x: Tensor) -> Tensor:
        return torch.add(x, (x[0] < 0) or (x[1] > 3) or x[2].abs(), alpha=2)

    return program


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
