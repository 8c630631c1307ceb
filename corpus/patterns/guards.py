"""Checks that only raise."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from corpus.patterns.pattern import CALL, GUARD, OUTPUT, WHERE, pattern, patterns_among, signs
from tests.equivalence import Call, call

Program = Callable[..., Any]


class WrongTotal(ValueError):
    """An exception with attributes."""

    def __init__(self, total: float, limit: int) -> None:
        super().__init__(f"total {total:.2f} is over {limit}")
        self.total, self.limit = total, limit


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


@pattern(signs, GUARD, OUTPUT)
def check_after_output() -> Program:
    def program(x: Tensor) -> Tensor:
        print("before", x.sum().item())
        if x.sum() < 0:
            raise ValueError("negative")
        print("after")
        return x * 2

    return program


@pattern(signs, GUARD)
def check_in_a_submodule() -> Any:
    class Checked(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if x.sum() < 0:
                raise ValueError(f"negative in {type(self).__name__}")
            return x + 1

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.checked = Checked()

        def forward(self, x: Tensor) -> Tensor:
            return self.checked(x * 2) + 1

    return Net()


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
def check_in_a_function_that_is_called() -> Program:
    def check(x: Tensor) -> None:
        if x.sum() < 0:
            raise WrongTotal(float(x.sum()), limit=4)

    def program(x: Tensor) -> Tensor:
        check(x)
        return x * 2

    return program


@pattern(signs, GUARD)
def exception_raised_by_a_call_in_the_arm() -> Program:
    def fail(text: str) -> None:
        raise RuntimeError(text)

    def program(x: Tensor) -> Tensor:
        if x.sum() < 0:
            fail("negative")
        return x * 2

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


@pattern(signs, GUARD)
def exception_built_before() -> Program:
    def program(x: Tensor) -> Tensor:
        error = ValueError("built before", 3)
        if x.sum() < 0:
            raise error
        return x * 2

    return program


@pattern(signs, WHERE)
def check_caught_in_the_same_function() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            if x.sum() < 0:
                raise ValueError("negative")
            y = x * 2
        except ValueError:
            y = x - 1
        return y

    return program


@pattern(signs, GUARD)
def check_caught_by_the_caller() -> Program:
    def check(x: Tensor) -> Tensor:
        if x.sum() < 0:
            raise ValueError("negative")
        return x * 2

    def program(x: Tensor) -> Tensor:
        try:
            return check(x)
        except ValueError as error:
            return x - len(error.args)

    return program


@pattern(signs, GUARD)
def check_under_no_grad() -> Program:
    def program(x: Tensor) -> Tensor:
        with torch.no_grad():
            if x.sum() < 0:
                raise ValueError("negative")
        return x * 2

    return program


@pattern(signs, GUARD)
def state_changed_before_the_check() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            self.seen = self.seen + x.detach()
            if x.sum() < 0:
                raise ValueError("negative")
            return x + self.seen

    return Net()


def _indices() -> list[Call]:
    table = torch.arange(12.0).reshape(4, 3)
    return [call(table.clone(), torch.tensor(each)) for each in ([0, 3], [1, 2], [0, 7])]


@pattern(_indices, GUARD)
def check_before_an_operation_that_fails() -> Program:
    def program(table: Tensor, index: Tensor) -> Tensor:
        if index.max() >= table.shape[0]:
            raise ValueError(f"index {index.max().item()} is out of range")
        return table[index] * 2

    return program


@pattern(signs, GUARD)
def check_that_names_a_stage() -> Any:
    class Net(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            self.stage = "first"
            if x.sum() < 0:
                raise ValueError(f"negative in the {self.stage} stage")
            self.stage = "second"
            return x * 2

    return Net()


@pattern(signs, GUARD)
def check_of_a_variable_that_a_function_shares() -> Program:
    def program(x: Tensor) -> Tensor:
        total = x.sum()

        def share() -> Tensor:
            return x / total

        if total < 0:
            raise WrongTotal(total.item(), 0)
        total = total + 1
        return share()

    return program


@pattern(signs, GUARD)
def checks_in_two_functions_that_are_called() -> Program:
    def check_least(x: Tensor, low: float) -> Tensor:
        if x.min() < low:
            raise ValueError(f"least {x.min().item()}")
        return x

    def check_most(x: Tensor, high: float) -> None:
        assert x.max() < high, ("most", x.max().item())

    def program(x: Tensor) -> Tensor:
        x = check_least(x, -3.5)
        check_most(x, 2.5)
        return x + 1

    return program


@pattern(signs, GUARD)
def check_in_each_turn_of_a_loop() -> Program:
    def program(x: Tensor) -> Tensor:
        for index in range(3):
            if x[index] < -3.5:
                raise IndexError(f"item {index}: {x[index].item()}")
            x = x + 1
        return x

    return program


@pattern(signs, GUARD)  # only plain Python reaches the handler
def call_tried_again_after_a_check() -> Any:
    class Inner(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if x.sum() < 0:
                raise WrongTotal(x.sum().item(), 0)
            return x * 2

    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()
            self.layer = torch.nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            for number in range(3):
                try:
                    y = self.inner(x)
                    break
                except WrongTotal as error:
                    print("try", number, "failed:", error.total)
                    x = x + 2
                    y = x
            return self.layer(y)

    return Outer()


@pattern(signs, GUARD, OUTPUT)
def check_past_a_finally() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        try:
            if x.sum() < 0:
                raise ValueError("negative")
            y = y + 1
        finally:
            print("done with", y.sum().item())
        return y

    return program


@pattern(signs, GUARD)
def exception_that_gets_a_note() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            if x.sum() < 0:
                raise ValueError("negative")
        except ValueError as error:
            error.add_note(f"of {tuple(x.shape)}")
            raise
        return x * 2

    return program


@pattern(signs, GUARD)
def check_between_two_changes_of_a_buffer() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("rows", torch.zeros(2, 3))

        def forward(self, x: Tensor) -> Tensor:
            self.rows[0] = x.detach()
            if self.rows.sum() < 0:
                raise ValueError(f"negative: {self.rows.tolist()}")
            self.rows[1] += 1
            return x + self.rows.sum(0)

    return Net()


@pattern(signs, GUARD, OUTPUT)
def check_between_two_dropouts() -> Any:
    class Net(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = torch.nn.functional.dropout(x)
            print("dropped", tuple(y.shape))
            if x.min() < -3.5:
                raise WrongTotal(x.min().item(), -3)
            return torch.nn.functional.dropout(y)

    return Net()


@pattern(_indices, GUARD)
def check_before_a_look_up_behind_a_dropout() -> Any:
    class Net(torch.nn.Module):
        def forward(self, table: Tensor, index: Tensor) -> Tensor:
            table = torch.nn.functional.dropout(table)
            if index.max() >= table.shape[0]:
                raise ValueError(f"index {index.max().item()} is out of range")
            return table[index] * 2

    return Net()


@pattern(signs, GUARD)
def check_behind_a_batch_norm() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(3)

        def forward(self, x: Tensor) -> Tensor:
            y = self.norm(x.expand(2, 3))
            if x.min() < -3.5:
                raise WrongTotal(x.min().item(), -3)
            return y

    return Net()


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


@pattern(signs, GUARD, OUTPUT)
def check_caught_and_told() -> Any:
    class Net(torch.nn.Module):
        def checked(self, x: Tensor) -> Tensor:
            if x.sum() < 0:
                raise WrongTotal(x.sum().item(), 0)
            return x * 2

        def forward(self, x: Tensor) -> Tensor:
            try:
                print("checking")
                y = self.checked(x)
            except WrongTotal as error:
                print("wrong:", error, error.total)
                y = x - 1
            finally:
                print("checked")
            return y + 1

    return Net()


@pattern(signs, GUARD)
def check_whose_exception_is_suppressed() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x + 1
        with contextlib.suppress(ValueError):
            if x.sum() < 0:
                raise ValueError("negative")
            y = x * 2
        return y

    return program


@pattern(signs, GUARD)
def check_that_becomes_another_exception() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            if x.sum() < 0:
                raise KeyError("negative")
        except KeyError as error:
            raise WrongTotal(x.sum().item(), 1) from error
        return x * 2

    return program


PATTERNS = patterns_among(list(vars().values()))
