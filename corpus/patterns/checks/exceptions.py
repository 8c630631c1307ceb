"""What a check raises: class, arguments, cause and message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from corpus.patterns.pattern import GUARD, NO_MERGE, OUTPUT, pattern, patterns_among, signs
from corpus.patterns.shared_exceptions import BadBatch, Diverged, OutOfRange, Rejected, WrongTotal

Program = Callable[..., Any]


@pattern(signs, GUARD)
def check_with_a_fixed_message() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() < 0:
            raise ValueError("negative")
        return x * 2

    return program


@pattern(signs, GUARD)
def check_with_a_number_in_the_message() -> Program:
    def program(x: Tensor) -> Tensor:
        total = x.sum()
        if total < 0:
            raise ValueError(f"total {total.item():.3f} of {tuple(x.shape)} is negative")
        return x * 2

    return program


@pattern(signs, GUARD)
def check_with_the_class_alone() -> Program:
    def program(x: Tensor) -> Tensor:
        if (x < 0).any():
            raise NotImplementedError
        return x * 2

    return program


@pattern(signs, GUARD)
def check_with_an_exception_of_its_own() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() < 0:
            raise WrongTotal(x.sum().item(), 3)
        return x * 2

    return program


@pattern(signs, GUARD)
def check_with_a_cause() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() < 0:
            raise ValueError("negative") from KeyError("the cause")
        return x * 2

    return program


@pattern(signs, GUARD)
def check_that_hides_its_context() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() < 0:
            raise ValueError("negative", 4) from None
        return x * 2

    return program


@pattern(signs, GUARD)
def exception_built_before() -> Program:
    def program(x: Tensor) -> Tensor:
        error = ValueError("built before", 3)
        if x.sum() < 0:
            raise error
        return x * 2

    return program


@pattern(signs, GUARD)
def exception_that_takes_keywords() -> Program:
    def program(x: Tensor) -> Tensor:
        total = x.sum()
        if total < 0:
            raise OutOfRange(total.item(), low=0.0, high=10.0)
        return x * 2

    return program


@pattern(signs, GUARD)
def exception_that_is_a_dataclass() -> Program:
    def program(x: Tensor) -> Tensor:
        if torch.any(x < 0):
            raise BadBatch(int((x < 0).sum()), "negative")
        return x * 2

    return program


@pattern(signs, GUARD)
def exception_without_arguments_of_a_user() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() < 0:
            raise Diverged
        return x * 2

    return program


@pattern(signs, GUARD)
def exception_that_gets_an_attribute() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() < 0:
            error = Diverged("diverged", tuple(x.shape))
            error.step = 3  # type: ignore[attr-defined]
            raise error
        return x * 2

    return program


@pattern(signs, GUARD)
def cause_made_of_a_tensor() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.min() < -3:
            raise Diverged("too small") from OutOfRange(x.min().item(), low=-3.0, high=9.0)
        return x * 2

    return program


@pattern(signs, GUARD)
def message_with_numbers_of_a_tensor() -> Program:
    def program(x: Tensor) -> Tensor:
        if (x < 0).any():
            raise ValueError(
                f"max {x.max().item():.2f}, {(x < 0).sum().item()} of {x.numel()} below zero,"
                f" first at {(x < 0).nonzero()[0].item()}: {x.tolist()}"
            )
        return x * 2

    return program


@pattern(signs, GUARD)
def message_with_a_tensor() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        assert (y > -3).all(), f"bad values in {y}"
        return y

    return program


@pattern(signs, GUARD)
def message_by_percent_formatting() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() < 0:
            raise ValueError("%s: sum %.3f" % ("x", x.sum()))  # noqa: UP031
        return x * 2

    return program


@pattern(signs, GUARD, OUTPUT)
def group_of_exceptions() -> Program:
    def program(x: Tensor) -> Tensor:
        errors = []
        print("validating")
        if x.sum() < 0:
            raise ExceptionGroup("two", [ValueError("sum", x.sum().item()), TypeError("type")])
        errors.append(1)
        return x * len(errors)

    return program


@pattern(signs, GUARD)
def exception_made_by_a_function() -> Program:
    def error_of(x: Tensor, name: str) -> Exception:
        return Rejected([x.min().item(), x.max().item(), len(name)])

    def program(x: Tensor) -> Tensor:
        if x.sum() < 0:
            raise error_of(x, "x")
        return x * 2

    return program


@pattern(signs, GUARD)
def message_collected_in_a_list_that_is_raised() -> Program:
    def program(x: Tensor) -> Tensor:
        problems = []
        if x.max() > 2.5:
            problems.append(f"largest is {x.max().item()}")
        if problems:
            raise Rejected(problems)
        return x * 2

    return program


@pattern(signs, GUARD)
def messages_collected_in_a_list_that_is_raised() -> Program:
    def program(x: Tensor) -> Tensor:
        problems = []
        if x.max() > 2.5:
            problems.append("too large")
        if x.min() < -2.5:
            problems.append("too small")
        if len(problems) > 0:
            raise ValueError("; ".join(problems), len(problems))
        return x * 2

    return program


@pattern(signs, GUARD)
def texts_with_numbers_collected_and_joined() -> Program:
    def program(x: Tensor) -> Tensor:
        problems = []
        if x.max() > 2.5:
            problems.append(f"largest is {x.max().item():.1f}")
        if x.min() < -2.5:
            problems.append(f"least is {x.min().item()!r}")
        if problems:
            raise ValueError("; ".join(problems))
        return x * 2

    return program


@pattern(signs, GUARD)
def text_that_grows_under_conditions() -> Program:
    def program(x: Tensor) -> Tensor:
        problem = ""
        if x.max() > 2.5:
            problem = f"largest is {x.max().item()}"
        if x.min() < -2.5:
            problem += f", least is {x.min().item()} {{of all}}"
        if problem:
            raise ValueError(problem)
        return x * 2

    return program


@pattern(signs, GUARD, NO_MERGE)
def message_bound_by_an_earlier_test() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() < 0:
            message = "negative"
        if x.min() < -3.5:
            raise ValueError(message)
        return x * 2

    return program


PATTERNS = patterns_among(list(vars().values()))
