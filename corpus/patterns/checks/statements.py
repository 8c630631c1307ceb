"""Checks by `assert` or `torch._check`, in arms and several in sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from corpus.patterns.pattern import (
    CALL,
    CHOICE,
    GUARD,
    WHERE,
    pairs,
    pattern,
    patterns_among,
    signs,
)
from corpus.patterns.shared_exceptions import Diverged

Program = Callable[..., Any]


@pattern(pairs, GUARD)
def truth_by_equal_in_a_check() -> Program:
    def program(x: Tensor, y: Tensor) -> Tensor:
        if torch.equal(x, y):
            raise ValueError("equal", 3)
        return x * y

    return program


@pattern(signs, GUARD)
def assertion() -> Program:
    def program(x: Tensor) -> Tensor:
        assert x.sum() > 0
        return x * 2

    return program


@pattern(signs, GUARD)
def assertion_with_a_message() -> Program:
    def program(x: Tensor) -> Tensor:
        assert (x > -3).all(), f"too small: {x.min().item()}"
        return x * 2

    return program


@pattern(signs, GUARD, WHERE)
def assertion_of_two_conditions() -> Program:
    def program(x: Tensor) -> Tensor:
        assert x.sum() > -5 and x.max() < 3, "out of range"
        return x * 2

    return program


@pattern(signs, GUARD)
def checks_in_order() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.min() < -3:
            raise ValueError("first")
        y = x * 2
        if y.sum() < 0:
            raise TypeError("second")
        return y

    return program


@pattern(signs, GUARD, WHERE)
def check_in_an_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() < 0:
            if x.min() < -3:
                raise ValueError("far too small")
            y = x - 1
        else:
            y = x * 2
        return y

    return program


@pattern(signs, GUARD)
def check_that_raises_in_the_else() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            y = x * 2
        else:
            raise ValueError("not positive")
        return y

    return program


@pattern(signs, WHERE)
def assertion_by_a_function_of_torch() -> Program:
    def program(x: Tensor) -> Tensor:
        torch._assert(x.sum() > -3, "the sum is too small")
        return x + 1 if x.max() > 1 else x * 2

    return program


@pattern(signs, CALL, WHERE)
def check_by_a_function_of_torch() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.max() > 1:
            x = x + 1
        number = x.abs().max().int().item()
        torch._check(number < 4)
        return x * number

    return program


@pattern(signs, GUARD)
def check_of_a_range() -> Program:
    def program(x: Tensor) -> Tensor:
        if not -3 < x.sum() < 5:
            raise ValueError(f"sum {x.sum().item():.1f} is out of range")
        return x * 2

    return program


@pattern(signs, GUARD)
def assertion_of_a_range() -> Program:
    def program(x: Tensor, low: float = -3.0) -> Tensor:
        total = x.sum()
        assert low < total < total.abs() + 1, (low, total.item())
        return x * 2

    return program


@pattern(signs, GUARD, WHERE)
def check_of_what_must_not_lie_between() -> Program:
    def program(x: Tensor, low: float = -3.0, high: float = 0.0) -> Tensor:
        if low < x.sum() < high:
            raise ValueError("too close to zero")
        return x * 2

    return program


@pattern(signs, GUARD)
def assertion_that_everything_is_finite() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x.sqrt()
        assert torch.isfinite(y).all(), "not finite"
        assert not torch.isnan(y).any()
        return y

    return program


@pattern(signs, GUARD)
def assertion_with_a_tuple_as_message() -> Program:
    def program(x: Tensor) -> Tensor:
        assert x.min() >= -3.5, ("minimum", x.min().item(), x.shape)
        return x * 2

    return program


@pattern(signs, GUARD)
def assertion_of_a_number() -> Program:
    def program(x: Tensor) -> Tensor:
        total = x.sum().item()
        assert total > 0, f"total is {total:.1f}"
        return x * 2

    return program


@pattern(signs, GUARD)
def assertion_that_tensors_are_equal() -> Program:
    def program(x: Tensor) -> Tensor:
        assert torch.equal(x, x.abs()), "negative values"
        assert torch.allclose(x, x.round()), "not whole"
        return x * 2

    return program


@pattern(signs, GUARD)
def three_checks_with_classes_of_their_own() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.max() > 100:
            raise OverflowError("too large")
        if x.min() < -3.5:
            raise ValueError("too small")
        if x.sum() < -5:
            raise Diverged("sum", 1)
        return x * 2

    return program


@pattern(signs, GUARD)
def elif_and_else_behind_a_check() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.min() < -3.5:
            raise ValueError("too small")
        elif x.sum() < -5:
            raise TypeError("sum too small")
        else:
            y = x * 2
        return y

    return program


@pattern(signs, GUARD, WHERE)
def check_between_two_choices() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 3:
            y = x * 2
        elif x.sum() < -5:
            raise ValueError(f"sum {x.sum().item()}")
        else:
            y = x - 1
        return y

    return program


@pattern(signs, GUARD, WHERE)
def check_in_each_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            if x.max() > 2.5:
                raise OverflowError("large")
            y = x * 2
        else:
            if x.min() < -3.5:
                raise ValueError("small")
            y = x - 1
        return y

    return program


@pattern(signs, GUARD)
def both_sides_of_an_inner_branch_raise() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.min() < 0:
            if x.max() < 0:
                raise ValueError("all negative")
            else:
                raise KeyError(f"{(x < 0).sum().item()} negative")
        return x.sqrt()

    return program


@pattern(signs, CALL)
def check_of_all_elements_by_torch() -> Program:
    def program(x: Tensor) -> Tensor:
        torch._check_tensor_all(x > -3.5, lambda: f"too small: {x.tolist()}")
        return x * 2

    return program


@pattern(signs, CALL)
def check_of_a_value_by_torch() -> Program:
    def program(x: Tensor) -> Tensor:
        count = (x > 0).sum().item()
        torch._check_value(count > 1, lambda: f"{count} are positive")
        torch._check_index(count < 9)
        return x * 2

    return program


@pattern(signs)
def assertion_by_torch_with_a_message_of_the_data() -> Program:
    def program(x: Tensor) -> Tensor:
        torch._assert(x.sum() > 0, f"the sum is {x.sum().item():.1f}")
        return x * 2

    return program


@pattern(signs, GUARD, WHERE)
def early_returns_and_a_check_between() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 5:
            return x * 2
        if x.min() < -3.5:
            raise ValueError("too small")
        if x.max() > 0:
            return x + 1
        return x - 1

    return program


@pattern(signs, CHOICE, GUARD)
def assertion_that_a_helper_gave_a_tensor() -> Program:
    def bonus(x: Tensor) -> Tensor | None:
        if x.sum() > 0:
            return None
        return x * 2

    def program(x: Tensor) -> Tensor:
        more = bonus(x)
        assert more is not None, f"no bonus for {x.sum():.1f}"
        return more + 1

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


PATTERNS = patterns_among(list(vars().values()))
