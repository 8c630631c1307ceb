"""Branches on tensors, in every form that a condition takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from corpus.patterns.pattern import WHERE, pairs, pattern, patterns_among, signs
from tests.equivalence import Call, call

Program = Callable[..., Any]


@pattern(signs, WHERE)
def if_else() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            y = x * 2
        else:
            y = x - 1
        return y + 1

    return program


@pattern(signs, WHERE)
def if_without_else() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x + 1
        if x.sum() > 0:
            y = y * 3
        return y - 1

    return program


@pattern(signs, WHERE)
def early_return() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x * 2
        return x - 1

    return program


@pattern(signs, WHERE)
def early_returns_in_sequence() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 5:
            return x * 2
        y = x + 1
        if y.min() < -2:
            return y - 1
        z = y * y
        if z.max() > 4:
            return z / 2
        return z

    return program


@pattern(signs, WHERE)
def early_return_of_several_values() -> Program:
    def program(x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        if x.sum() > 0:
            return x * 2, {"a": x + 1, "b": x + 2}
        return x - 1, {"a": x - 1, "b": x - 2}

    return program


@pattern(signs, WHERE)
def elif_chain() -> Program:
    def program(x: Tensor) -> Tensor:
        total = x.sum()
        if total > 5:
            y = x * 2
        elif total > 0:
            y = x * 3
        elif total < -5:
            y = x - 1
        else:
            y = x.abs()
        return y

    return program


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


@pattern(signs, WHERE)
def nested_ifs() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            if x.max() > 2:
                y = x * 2
            else:
                y = x * 3
        else:
            y = x - 1
            if x.min() < -3:
                y = y * 5
        return y

    return program


@pattern(signs, WHERE)
def several_variables_bound() -> Program:
    def program(x: Tensor) -> tuple[Tensor, Tensor, int]:
        kept = 4
        if x.sum() > 0:
            a, b = x * 2, x + 1
        else:
            b = x - 1
            a = b * b
        return a + b, b, kept

    return program


@pattern(signs, WHERE, may_copy=True)
def containers_bound() -> Program:
    def program(x: Tensor) -> tuple[list[Tensor], dict[str, Tensor]]:
        if x.sum() > 0:
            items, names = [x, x * 2], {"one": x + 1}
        else:
            items, names = [x - 1, x], {"one": x - 1}
        items.append(x * 0)
        names["two"] = items[0]
        return items, names

    return program


@pattern(signs, WHERE, may_copy=True)
def value_of_and() -> Program:
    def program(x: Tensor) -> Tensor:
        return (x.sum() > 0) and (x.max() > 2)

    return program


@pattern(signs, WHERE)
def gradient_of_the_untaken_side_is_not_a_number() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x.relu()
        if y.min() > 0:
            z = (y**0.5).log()
        else:
            z = y * 2
        return z

    return program


PATTERNS = patterns_among(list(vars().values()))
