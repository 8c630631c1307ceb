"""Checks that raise: what the exception carries, where it comes from, and what surrounds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from corpus.patterns.pattern import GUARD, OUTPUT, WHERE, pattern, patterns_among, signs

Program = Callable[..., Any]


class OutOfRange(ArithmeticError):
    """An exception that takes keywords, has attributes and a text of its own."""

    def __init__(self, value: float, *, low: float, high: float) -> None:
        super().__init__(value, low, high)
        self.value, self.low, self.high = value, low, high

    def __str__(self) -> str:
        return f"{self.value:.2f} is not in [{self.low}, {self.high}]"


@dataclass(eq=False)
class BadBatch(Exception):
    """An exception that is a dataclass."""

    index: int
    reason: str


class Diverged(RuntimeError):
    """An exception with a counter on its class."""

    code = 7


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
def check_in_nested_loops() -> Program:
    def program(x: Tensor) -> Tensor:
        for outer in range(2):
            for inner in range(2):
                if (x[inner] + outer).abs() > 3.5:
                    raise BadBatch(outer * 10 + inner, f"{x[inner].item():.1f}")
            x = x * 1.1
        return x

    return program


@pattern(signs, GUARD)
def check_in_a_nested_function() -> Program:
    def program(x: Tensor) -> Tensor:
        limit = -3.5

        def checked(value: Tensor, name: str) -> Tensor:
            if value.min() < limit:
                raise ValueError(f"{name} is below {limit}: {value.min().item()}")
            return value

        return checked(x, "x") * checked(x * 2, "twice x")

    return program


@pattern(signs, GUARD)
def checks_in_a_base_class() -> Any:
    class Base(torch.nn.Module):
        def validate(self, x: Tensor) -> None:
            if x.sum() < -5:
                raise ValueError(f"{type(self).__name__} got {x.sum().item()}")

        def forward(self, x: Tensor) -> Tensor:
            self.validate(x)
            return x + 1

    class Net(Base):
        def validate(self, x: Tensor) -> None:
            super().validate(x)
            if x.min() < -3.5:
                raise OutOfRange(x.min().item(), low=-3.5, high=9.0)

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * 2

    return Net()


@pattern(signs, GUARD, OUTPUT)
def warning_text_before_the_exception() -> Program:
    def program(x: Tensor) -> Tensor:
        print("checking", x.tolist())
        if x.sum() < 0:
            print("negative:", f"{x.sum().item():.2f}")
            raise Diverged("negative")
        print("fine")
        return x * 2

    return program


@pattern(signs, GUARD)
def check_behind_a_change_in_place() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x.detach() * 2
        y.add_(1)
        if y.sum() < 0:
            raise ValueError(f"sum is {y.sum().item():.1f}")
        y.mul_(2)
        return x + y

    return program


@pattern(signs, GUARD, training=False)
def check_of_an_argument_that_was_changed() -> Program:
    def program(x: Tensor) -> Tensor:
        x.mul_(2)
        if x.min() < -7:
            raise ValueError(f"minimum {x.min().item()} of {x.tolist()}")
        return x + 1

    return program


@pattern(signs, GUARD, training=False)
def message_about_what_is_changed_later() -> Program:
    def program(x: Tensor) -> Tensor:
        x.add_(1)
        low = x.min()
        if low < -2.5:
            raise OutOfRange(low.item(), low=x.max().item(), high=x.sum().item())
        low.zero_()
        return x + low

    return program


@pattern(signs, GUARD)
def check_of_weights_beside_dropout() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))

        def forward(self, x: Tensor) -> Tensor:
            y = torch.nn.functional.dropout(x * self.weight, 0.5, training=True)
            if x.min() < -3.5:
                raise OutOfRange(x.min().item(), low=-3.5, high=self.weight.sum().item())
            return y

    return Net()


@pattern(signs, GUARD)
def check_by_a_static_method() -> Any:
    class Checks:
        @staticmethod
        def positive(value: Tensor, *, name: str) -> Tensor:
            if not (value.sum() > 0):
                raise ValueError(f"{name!r} has to be positive, not {value.sum().item():g}")
            return value

    class Net(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return Checks.positive(x, name="x") * 2

    return Net()


@pattern(signs, GUARD)
def check_in_a_comprehension() -> Program:
    def check(value: Tensor, index: int) -> Tensor:
        if value < -3.5:
            raise IndexError(index)
        return value * 2

    def program(x: Tensor) -> Tensor:
        return torch.stack([check(value, index) for index, value in enumerate(x)])

    return program


@pattern(signs, GUARD)
def check_in_a_property() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("bound", torch.tensor(-3.5))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.scale(x)

        def scale(self, x: Tensor) -> Tensor:
            if x.min() < self.bound:
                raise AttributeError(f"below {self.bound.item()}")
            return self.bound * 2

    return Net()


@pattern(signs, GUARD)
def check_within_a_context() -> Program:
    def program(x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False), torch.no_grad():
            if x.detach().sum() < 0:
                raise RuntimeError("negative", {"sum": x.sum().item()})
        return x * 2

    return program


@pattern(signs, GUARD)
def exception_raised_again_by_a_handler() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            if x.sum() < 0:
                raise ValueError("negative", x.sum().item())
            y = x * 2
        except ValueError:
            raise
        return y

    return program


@pattern(signs, GUARD)
def exception_with_a_context() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            if x.sum() < 0:
                raise KeyError("first")
        except KeyError:
            raise Diverged("second")  # noqa: B904
        return x * 2

    return program


@pattern(signs, GUARD, WHERE)
def check_that_an_index_is_in_range() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            index = x.detach().long()
            if index.max() >= self.table.num_embeddings or index.min() < 0:
                raise IndexError(f"index {index.tolist()} for {self.table.num_embeddings} rows")
            return self.table(index) * x[:, None]

    return Net()


@pattern(signs, GUARD)
def check_by_a_decorator() -> Program:
    def finite(function: Program) -> Program:
        def wrapped(*arguments: Tensor) -> Tensor:
            for number, argument in enumerate(arguments):
                if not torch.isfinite(argument.sqrt()).all():
                    raise ValueError(
                        f"argument {number} of {function.__name__}: {argument.tolist()}"
                    )
            result: Tensor = function(*arguments)
            return result

        return wrapped

    @finite
    def program(x: Tensor) -> Tensor:
        return x * 2

    return program


PATTERNS = patterns_among(list(vars().values()))
