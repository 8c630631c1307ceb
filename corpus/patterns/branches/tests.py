"""Conditions of one test: a truth, or a bool or number out of a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpus.patterns.pattern import CHOICE, WHERE, pairs, pattern, patterns_among, refused, signs
from tests.equivalence import Call, call

Program = Callable[..., Any]


@pattern(signs, WHERE)
def condition_by_any() -> Program:
    def program(x: Tensor) -> Tensor:
        if (x < 0).any():
            x = x.abs() + 1
        return x * 2

    return program


@pattern(signs, WHERE)
def condition_by_all() -> Program:
    def program(x: Tensor) -> Tensor:
        if torch.all(x > 0):
            y = x.sqrt()
        else:
            y = x * x
        return y

    return program


@pattern(signs, WHERE)
def condition_stored_first() -> Program:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        flag = x.sum() > 0
        y = x + 1
        if flag:
            y = y * 2
        return y, flag

    return program


def _flags() -> list[Call]:
    x = torch.tensor([1.0, 2.0])
    return [call(x.clone(), torch.tensor(True)), call(x.clone(), torch.tensor(False))]


@pattern(_flags, WHERE)
def condition_is_a_parameter() -> Program:
    def program(x: Tensor, flag: Tensor) -> Tensor:
        if flag:
            return x * 2
        return x - 1

    return program


@pattern(signs, WHERE)
def condition_by_bool() -> Program:
    def program(x: Tensor) -> Tensor:
        if bool(x.sum() > 0):
            return x * 2
        return x - 1

    return program


@pattern(signs, WHERE)
def condition_by_item() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum().item() > 0:
            return x * 2
        return x - 1

    return program


@pattern(signs, WHERE)
def condition_by_float() -> Program:
    def program(x: Tensor) -> Tensor:
        if float(x.max()) > 0.75:
            return x * 2
        return x - 1

    return program


@pattern(pairs, WHERE, zero_gradients=True)
def condition_by_torch_equal() -> Program:
    def program(x: Tensor, y: Tensor) -> Tensor:
        if torch.equal(x, y):
            return x * 2
        return x - y

    return program


@pattern(pairs, WHERE, zero_gradients=True)
def condition_by_allclose() -> Program:
    def program(x: Tensor, y: Tensor) -> Tensor:
        if torch.allclose(x, y):
            return x * 2
        return x - y

    return program


def _truths() -> list[Call]:
    values = ([[0.0]], [[2.5]], [[float("nan")]], [[-0.0]])
    return [call(torch.tensor(each)) for each in values]


@pattern(_truths, WHERE)
def truth_of_a_number_in_two_dimensions() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x + 0
        if y:
            return torch.ones_like(x) + x
        return x - 3

    return program


@pattern(signs, WHERE)
def condition_by_walrus() -> Program:
    def program(x: Tensor) -> Tensor:
        if (total := x.sum()) > 0:
            return x * total
        return x - total

    return program


@pattern(pairs, WHERE)
def truth_by_the_method_equal() -> Program:
    def program(x: Tensor, y: Tensor) -> Tensor:
        if not x.equal(y):
            return x * y
        return x + y

    return program


@pattern(pairs, WHERE)
def truth_by_equal_of_other_sizes() -> Program:
    def program(x: Tensor, y: Tensor) -> Tensor:
        if torch.equal(x[:2], y) or torch.equal(x[:0], y[:0]):
            if torch.equal(x, y):
                return x * y
        return x + y

    return program


def _undefined() -> list[Call]:
    nan, infinity = float("nan"), float("inf")
    one = torch.tensor([1.0, nan, infinity])
    other = torch.tensor([1.0 + 1e-4, nan, infinity])
    return [call(one.clone(), one.clone()), call(one.clone(), other), call(one, -one)]


@pattern(_undefined, WHERE, training=False)
def truth_of_undefined_values() -> Program:
    def program(x: Tensor, y: Tensor) -> Tensor:
        z = x * 2
        if torch.equal(x, x):
            z = z + 1
        if torch.allclose(x, y, 1e-3, equal_nan=True):
            z = z + 2
        if x.allclose(y, rtol=1e-3):
            z = z + 4
        if x[1].item() == x[1].item():
            z = z + 8
        if x[1].item():
            z = z + 16
        return z

    return program


@pattern(pairs, CHOICE, WHERE)
def truth_by_is_nonzero() -> Program:
    def program(x: Tensor, y: Tensor) -> Tensor:
        if torch.is_nonzero(x.sum() - 6) and y[:1].is_nonzero():
            return x * y
        return x + y

    return program


@pattern(pairs, WHERE)
def truth_of_an_integer_out_of_a_tensor() -> Program:
    def program(x: Tensor, y: Tensor) -> Tensor:
        if int(x.sum()) == 6:
            return x * y
        return x + y

    return program


def _large() -> list[Call]:
    x = torch.tensor([1.0, 2.0])
    largest = 2**53
    return [call(x.clone(), torch.tensor(each)) for each in (largest + 1, largest - 1, largest)]


@pattern(_large, WHERE)
def truth_of_an_integer_past_the_doubles() -> Program:
    def program(x: Tensor, count: Tensor) -> Tensor:
        if count.item() > 9007199254740992.0:
            return x * 2
        if count.item() >= 9007199254740992:
            return x * 3
        return x + 1

    return program


@pattern(pairs, WHERE)
def truth_tested_many_times() -> Program:
    def program(x: Tensor, y: Tensor) -> Tensor:
        flag = (x > 2).any().item()
        if flag:
            x = x + 1
        z = x * y
        if not flag:
            z = z - 1
        return z * 2 if flag else z

    return program


@pattern(pairs, WHERE)
def truth_passed_to_a_nested_function() -> Program:
    def program(x: Tensor, y: Tensor) -> Tensor:
        def scaled(value: Tensor, flag: bool) -> Tensor:
            if flag:
                return value * 2
            return value - 1

        flag = (x > 2).any().item()
        return scaled(x, flag) + scaled(y, flag)

    return program


@pattern(pairs, WHERE, recompiles=2)
def truth_stored_on_the_module() -> Program:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.is_large = False

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            self.is_large = bool((x > 2).any())
            return self._scaled(x) * y

        def _scaled(self, x: Tensor) -> Tensor:
            if self.is_large:
                return x * 2
            return x - 1

    return Net()


@pattern(pairs, WHERE)
def truth_taken_before_a_change_in_place() -> Program:
    def program(x: Tensor, y: Tensor) -> Tensor:
        z = x * y
        total = z.sum().detach()
        number = total.item()
        total.add_(100)
        if number > 10:
            return z + total
        return z - total

    return program


@pattern(
    signs,
    refused("multi-element-condition"),
    graphs=None,
    because=(
        "Eager execution raises at the jump (the truth of several elements is ambiguous), and"
        " so does the jump that is left."
    ),
)
def condition_of_several_elements() -> Program:
    def program(x: Tensor) -> Tensor:
        if torch.gt(x, 0):
            return x * 2
        return x - 1

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


@pattern(signs, WHERE)
def signs_of_two_sums_compared() -> Program:
    def program(x: Tensor) -> Tensor:
        left, right = x[:2].sum(), x[1:].sum()
        if (left > 0) != (right > 0):
            return x.flip(0)
        return x + left - right

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


PATTERNS = patterns_among(list(vars().values()))
