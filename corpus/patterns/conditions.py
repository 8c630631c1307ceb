"""Conditions as models write them: mixed with Python values, chained, kept, made into numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpus.patterns.pattern import CHOICE, COND, WHERE, pairs, pattern, patterns_among, rows, signs
from tests.equivalence import Call, call

Program = Callable[..., Any]


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


@pattern(rows, training_outcome=(COND,), zero_gradients=True, any_random_state=True)
def layer_drop_while_training() -> Any:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layerdrop = 0.5
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))

        def forward(self, x: Tensor) -> Tensor:
            x = x * 1
            for layer in self.layers:
                dropout_probability = torch.rand([])
                if self.training and dropout_probability < self.layerdrop:
                    continue
                x = layer(x)
            return x

    return Encoder()


@pattern(rows, training_outcome=(COND,), zero_gradients=True)
def layer_drop_decided_in_a_flag() -> Any:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layerdrop = 0.5
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))

        def forward(self, x: Tensor, synced_gpus: bool = False) -> Tensor:
            x = x * 1
            for layer in self.layers:
                skip_the_layer = self.training and (torch.rand([]) < self.layerdrop)
                if not skip_the_layer or synced_gpus:
                    x = layer(x)
            return x

    return Encoder()


@pattern(rows, CHOICE, COND, zero_gradients=True)
def layer_drop_decided_in_a_ternary() -> Any:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layerdrop = 0.5
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))

        def forward(self, x: Tensor) -> Tensor:
            x = x * 1
            for index, layer in enumerate(self.layers):
                dropped = torch.rand([]) < self.layerdrop
                skip = True if dropped and index > 0 else False
                if not skip:
                    x = layer(x)
            return x

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


@pattern(_masks, WHERE)
def truth_of_a_count() -> Program:
    def program(losses: Tensor, positive: Tensor) -> Tensor:
        num_positive = positive.sum()
        total = (losses * positive).sum()
        if num_positive:
            return total / num_positive
        return total * 0

    return program


@pattern(_masks, WHERE)
def normalised_by_a_count_that_may_be_zero() -> Program:
    def program(losses: Tensor, positive: Tensor) -> Tensor:
        num_positive = positive.sum().item()
        total = (losses * positive).sum()
        if num_positive > 0:
            total = total * 2
        return total + 1

    return program


@pattern(_masks, WHERE)
def count_made_an_integer_and_compared() -> Program:
    def program(x: Tensor, mask: Tensor) -> Tensor:
        if int(mask.sum()) == 0:
            return x * 0
        return x * mask

    return program


def _losses() -> list[Call]:
    return [call(torch.tensor(value)) for value in (1.5, float("nan"), float("inf"), 0.0)]


@pattern(_losses, WHERE, may_copy=True)
def loss_that_is_not_a_number() -> Program:
    def program(loss: Tensor) -> Tensor:
        if loss != loss:
            loss = torch.nan_to_num(loss)
        elif not torch.isfinite(loss):
            loss = loss.clamp(max=100.0)
        return loss * 0.5

    return program


@pattern(_losses, WHERE)
def truth_of_a_loss() -> Program:
    def program(loss: Tensor) -> Tensor:
        scaled = loss * 2
        if loss:
            scaled = scaled + 1
        return scaled

    return program


@pattern(signs, WHERE)
def truth_of_an_integer_tensor_negated() -> Program:
    def program(x: Tensor) -> Tensor:
        negatives = (x < 0).sum()
        if not negatives:
            return x.log()
        return x.abs() * negatives

    return program


@pattern(_masks, WHERE)
def condition_by_is_nonzero() -> Program:
    def program(x: Tensor, mask: Tensor) -> Tensor:
        if torch.is_nonzero(mask.any()):
            return x * 2
        return x - 1

    return program


@pattern(pairs, WHERE, zero_gradients=True)
def tied_weights_by_equal() -> Program:
    def program(embedding: Tensor, head: Tensor) -> Tensor:
        if not embedding.equal(head):
            head = head * 0.5 + embedding * 0.5
        return F.relu(head + 1)

    return program


def _labels() -> list[Call]:
    x = torch.tensor([0.5, -1.0, 2.0, 1.0])
    labels = ([0, 1, 0, 1], [0, 1, 2, 1], [3, 3, 3, 3])
    return [call(x.clone(), torch.tensor(each)) for each in labels]


@pattern(_labels, WHERE)
def number_of_distinct_labels() -> Program:
    def program(logits: Tensor, labels: Tensor) -> Tensor:
        if len(labels.unique()) > 2:
            return logits.softmax(-1)
        return logits.sigmoid()

    return program


@pattern(_masks, WHERE)
def flag_tested_again_in_other_functions() -> Any:
    class Block(nn.Module):
        def shift(self, x: Tensor, has_padding: bool) -> Tensor:
            return x + 1 if has_padding else x - 1

        def forward(self, x: Tensor, padding: Tensor) -> Tensor:
            has_padding = padding.any().item()
            if has_padding:
                x = x.masked_fill(padding, 0.0)
            x = self.shift(x, has_padding)
            x = x * 2
            if not has_padding:
                x = x.abs()
            return self.shift(x, has_padding)

    return Block()


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
def signs_of_two_sums_compared() -> Program:
    def program(x: Tensor) -> Tensor:
        left, right = x[:2].sum(), x[1:].sum()
        if (left > 0) != (right > 0):
            return x.flip(0)
        return x + left - right

    return program


@pattern(signs, WHERE)
def six_conditions_joined() -> Program:
    def program(x: Tensor) -> Tensor:
        a, b, c = x[0], x[1], x[2]
        if (a > 0 and b > 0 and a < b) or (not a > -2 and not (b > 0 or c > 0)):
            return x * a
        return x + b

    return program


def _python_and_tensor_flags() -> list[Call]:
    x = torch.tensor([1.0, 2.0])
    flags = (torch.tensor(True), True, torch.tensor(False), False)
    return [call(x.clone(), flag) for flag in flags]


@pattern(_python_and_tensor_flags, WHERE, graphs=3, recompiles=2)
def flag_now_a_tensor_now_a_bool() -> Program:
    def program(x: Tensor, use_cache: Tensor | bool) -> Tensor:
        if use_cache:
            return x * 2
        return x - 1

    return program


@pattern(signs, WHERE)
def guard_of_a_match_statement() -> Program:
    def program(x: Tensor, mode: str = "auto") -> Tensor:
        match mode:
            case "auto" if x.sum() > 0:
                return x * 2
            case "auto":
                return x - 1
            case _:
                return x

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


PATTERNS = patterns_among(list(vars().values()))
