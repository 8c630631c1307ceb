"""Checks whose exception the program handles: `try`, `finally`, `suppress`."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from corpus.patterns.pattern import CALL, GUARD, OUTPUT, WHERE, pattern, patterns_among, signs
from corpus.patterns.shared_exceptions import Coded, Diverged, Rejected, TooLong, WrongTotal, reject

Program = Callable[..., Any]
logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)


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


@pattern(signs, GUARD)
def exception_that_is_no_error() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            if x.sum() < 0:
                raise KeyboardInterrupt("stopped")
        except Exception:
            x = x + 100
        return x * 2

    return program


@pattern(signs, GUARD)
def group_caught_by_kind() -> Program:
    def check(x: Tensor) -> None:
        if x.sum() < 0:
            raise ExceptionGroup("bad", [ValueError("sum"), KeyError("key")])

    def program(x: Tensor) -> Tensor:
        try:
            check(x)
        except* ValueError as group:
            x = x + len(group.exceptions)
        return x * 2

    return program


@pattern(signs, GUARD)
def three_causes() -> Program:
    def program(x: Tensor) -> Tensor:
        total = x.sum()
        try:
            try:
                if total < 0:
                    raise KeyError("inner", total.item())
            except KeyError as error:
                raise ValueError("middle") from error
        except ValueError as error:
            raise Rejected([total.item()]) from error
        return x * 2

    return program


@pattern(signs, GUARD, OUTPUT)
def check_in_a_finally() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            y = x * 2
            if x.min() < -3.5:
                raise ValueError("small")
        finally:
            print("finally")
            if x.sum() < -5:
                raise TypeError("in the finally")
        return y

    return program


@pattern(signs, GUARD, recompiles=1, graphs=2)
def check_by_a_context_manager_of_ones_own() -> Any:
    class Watch:
        def __init__(self, log: list[str]) -> None:
            self.log = log

        def __enter__(self) -> Watch:
            self.log.append("enter")
            return self

        def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
            self.log.append("exit" if kind is None else kind.__name__)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.log: list[str] = []

        def forward(self, x: Tensor) -> Tensor:
            self.log.clear()
            with Watch(self.log):
                if x.sum() < 0:
                    raise Rejected(x.tolist())
                y = x * 2
            return y

    return Net()


@pattern(signs, WHERE, OUTPUT)
def check_whose_exception_is_logged() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            if x.sum() < 0:
                raise ValueError(f"negative: {x.sum().item():.2f}")
            x = x + 1
        except ValueError:
            logger.exception("turned round")
            x = -x
        return x * 2

    return program


@pattern(signs, WHERE, GUARD, OUTPUT)
def checks_whose_exceptions_have_causes() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            if x.sum() < 0:
                try:
                    reject(x)
                except ValueError as error:
                    raise TooLong(len(x)) from error
            if x[0] > 2:
                raise Coded(3, x.detach().sum(), x.shape)
            x = x + 1
        except (TooLong, Coded) as error:
            print(error, repr(error))
            traceback.print_exc()
            x = x - 1
        return x * 2

    return program


@pattern(signs, OUTPUT, WHERE)
def exception_of_an_arm_handled_beside_it() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            y = x.log()
            if y.isnan().any():
                raise FloatingPointError("not a number")
            y = y * 2
        except FloatingPointError as error:
            print("fallback:", error)
            y = x.abs().log1p()
        return y + 1

    return program


@pattern(signs, WHERE, may_copy=True)
def exceptions_that_steer_a_loop() -> Program:
    def program(x: Tensor) -> Tensor:
        for number in range(3):
            try:
                if x.sum() > 3:
                    raise StopIteration
                if x.sum() < -3:
                    raise ValueError(number)
                x = x + 1
            except StopIteration:
                break
            except ValueError:
                x = x * 2
                continue
            x = x + 0.5
        return x

    return program


@pattern(signs, CALL)
def check_that_is_caught() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            torch._check_index(x.shape[0] == 4, lambda: f"{x.shape} is no four")
        except IndexError as error:
            return x * len(str(error))
        return x

    return program


PATTERNS = patterns_among(list(vars().values()))
