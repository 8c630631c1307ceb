"""Blocks that one arm of a branch leaves, by return, break, continue or raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from corpus.patterns.pattern import COND, NO_MERGE, OUTPUT, WHERE, pattern, patterns_among, signs

Program = Callable[..., Any]


@pattern(signs, WHERE, may_copy=True)
def early_return_before_gradients_flow() -> Program:
    def program(x: Tensor) -> Tensor:
        with torch.no_grad():
            largest = x.abs().max()
            if largest > 3.5:
                return x
            scale = largest * 2
        return x / scale

    return program


@pattern(signs, NO_MERGE, WHERE, zero_gradients=True)
def returns_out_of_two_blocks() -> Program:
    def program(x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            with torch.no_grad():
                if x.sum() > 0:
                    return x * 2
                y = x.abs()
            z = x + y
            if z.max() > 3:
                return z
        return z - 1

    return program


@pattern(signs, NO_MERGE, WHERE, may_copy=True)
def break_out_of_a_block() -> Program:
    def program(x: Tensor) -> Tensor:
        for _ in range(3):
            with torch.no_grad():
                if x.sum() > 3:
                    break
            x = x * 2 + 1
        return x

    return program


@pattern(signs, NO_MERGE, WHERE)
def continue_out_of_a_block() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 1
        for number in range(3):
            with torch.no_grad():
                step = (x - number).max()
                if step < 1:
                    continue
            y = y + x * step
        return y

    return program


@pattern(signs, WHERE, zero_gradients=True)
def return_out_of_a_loop_in_a_block() -> Program:
    def program(x: Tensor) -> Tensor:
        with torch.no_grad():
            for number in range(3):
                x = x + number
                if x.sum() > 2:
                    return x * 2
        return x - 1

    return program


class Scale:
    """Gives a module another scale for the length of a block."""

    def __init__(self, module: Any, scale: float) -> None:
        self.module, self.scale = module, scale

    def __enter__(self) -> None:
        self.before, self.module.scale = self.module.scale, self.scale

    def __exit__(self, *exception: object) -> None:
        self.module.scale = self.before


@pattern(signs, WHERE)
def block_of_the_users_own() -> Any:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = 1.0

        def scaled(self, x: Tensor) -> Tensor:
            return x * self.scale

        def forward(self, x: Tensor) -> Tensor:
            with Scale(self, 3.0):
                y = self.scaled(x)
                if y.sum() > 0:
                    return self.scaled(y)
            return self.scaled(y)

    return Scaled()


@pattern(signs, OUTPUT, WHERE)
def output_before_and_behind_a_block() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            with torch.autocast("cpu", enabled=False):
                print("in", x.shape[0])
                if x.sum() > 0:
                    print("early")
                    return x * 2
                print("late")
            x = x + 1
        finally:
            print("end")
        return x

    return program


@pattern(signs, COND, NO_MERGE, zero_gradients=True)
def layers_with_a_check_in_a_block() -> Any:
    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                y = layer(x).relu()
                with torch.no_grad():
                    if (y - x).norm() < 4:
                        return y
                x = x + y
            return x

    return Layers()


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


@pattern(signs, WHERE, zero_gradients=True)
def try_in_a_block() -> Program:
    def program(x: Tensor) -> Tensor:
        with torch.no_grad():
            try:
                if x.sum() > 0:
                    return x * 2
                y = x + 1
            except RuntimeError:
                return x
            y = y * 2
        return y - x

    return program


PATTERNS = patterns_among(list(vars().values()))
