"""Branches in, around and out of `with` and `try` blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from corpus.patterns.pattern import COND, NO_MERGE, WHERE, pattern, patterns_among, rows, signs

Program = Callable[..., Any]


@pattern(signs, WHERE)
def branch_inside_try() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            if x.sum() > 0:
                y = x * 2
            else:
                y = x - 1
        except ValueError:
            y = x
        finally:
            x = x + 1
        return y + x

    return program


@pattern(signs, WHERE)
def branch_inside_with() -> Program:
    def program(x: Tensor) -> Tensor:
        with torch.no_grad():
            if x.sum() > 0:
                shift = x * 2
            else:
                shift = x - 1
        return x + shift

    return program


@pattern(signs, WHERE)
def branch_around_with() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            with torch.no_grad():
                shift = x * 2
            y = x + shift
        else:
            y = x - 1
        return y

    return program


@pattern(signs, WHERE)
def branch_around_try() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            try:
                y = {"a": x}["b"]
            except KeyError:
                y = x * 2
        else:
            y = x - 1
        return y

    return program


@pattern(signs, WHERE)
def branch_in_a_context_manager_of_its_own() -> Program:
    @contextmanager
    def noted(names: list[str]) -> Iterator[None]:
        names.append("in")
        yield
        names.append("out")

    def program(x: Tensor) -> tuple[Tensor, list[str]]:
        names: list[str] = []
        with noted(names):
            if x.sum() > 0:
                y = x * 2
            else:
                y = x - 1
        return y, names

    return program


@pattern(signs, WHERE, zero_gradients=True)
def return_from_inside_with() -> Program:
    def program(x: Tensor) -> Tensor:
        with torch.no_grad():
            if x.sum() > 0:
                return x * 2
        return x - 1

    return program


@pattern(signs, WHERE)
def return_from_inside_autocast() -> Program:
    def program(x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            if x.sum() > 0:
                return x.exp()
            y = x.float() - 1
        return y

    return program


@pattern(signs, WHERE)
def both_returns_inside_no_grad() -> Program:
    def program(x: Tensor) -> Tensor:
        with torch.no_grad():
            norm = x.norm()
            if norm > 3.9:
                return x / norm
            return x * 1

    return program


@pattern(signs, WHERE)
def return_from_inside_try() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            if x.sum() > 0:
                return x * 2
            y = x - 1
        except RuntimeError:
            y = x * 0
        return y

    return program


@pattern(signs, WHERE)
def return_past_a_finally() -> Any:
    class Guarded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.busy = False

        def forward(self, x: Tensor) -> Tensor:
            self.busy = True
            try:
                if x.sum() > 0:
                    return x * 2
                return x - 1
            finally:
                self.busy = False

    return Guarded()


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


@pattern(rows, COND, zero_gradients=True)
def branch_under_autocast() -> Any:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = self.linear(x)
                if y.float().sum() > 0:
                    y = self.linear(y)
                else:
                    y = y * 2
            return y.float() + x

    return Mixed()


@pattern(signs, WHERE)
def autocast_switched_off_in_an_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.abs().max() > 3.5:
            with torch.autocast("cpu", enabled=False):
                y = x.float().exp()
        else:
            y = x.exp()
        return y * 2

    return program


@pattern(signs, WHERE)
def gradients_switched_on_and_off() -> Program:
    def program(x: Tensor) -> Tensor:
        with torch.no_grad():
            scale = x.abs().mean()
            if scale > 2:
                scale = scale / 2
            with torch.enable_grad():
                y = x * 2 if scale > 1.2 else x * 3
        return y / scale

    return program


@pattern(signs, WHERE)
def branch_in_a_function_decorated_with_no_grad() -> Program:
    @torch.no_grad()
    def step_size(x: Tensor) -> Tensor:
        if x.norm() > 3.9:
            return 1 / x.norm()
        return torch.ones(())

    def program(x: Tensor) -> Tensor:
        return x * step_size(x)

    return program


class _Scope:
    """A context manager that notes its state."""

    def __init__(self) -> None:
        self.depth = 0

    def __enter__(self) -> _Scope:
        self.depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.depth -= 1


@pattern(signs, WHERE)
def branch_in_a_context_manager_of_a_class() -> Program:
    def program(x: Tensor) -> Tensor:
        scope = _Scope()
        with scope as entered:
            if x.sum() > 0:
                y = x * entered.depth
            else:
                y = x - entered.depth
        return y + scope.depth

    return program


@pattern(signs, WHERE)
def branch_in_a_finally() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x
        try:
            y = x + 1
        finally:
            if y.sum() > 0:
                y = y * 2
        return y - 1

    return program


@pattern(signs, WHERE)
def branch_in_a_handler() -> Program:
    def program(x: Tensor, cache: dict[str, Tensor] | None = None) -> Tensor:
        try:
            y = (cache or {})["x"]
        except KeyError:
            if x.sum() > 0:
                y = x * 2
            else:
                y = x - 1
        return y + 1

    return program


@pattern(signs, WHERE)
def context_manager_made_of_a_generator_around_branches() -> Any:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = 1.0

        @contextmanager
        def scaled(self, by: float) -> Iterator[None]:
            before, self.scale = self.scale, by
            yield
            self.scale = before

        def forward(self, x: Tensor) -> Tensor:
            with self.scaled(2.0):
                if x.sum() > 0:
                    y = x * self.scale
                else:
                    y = x + self.scale
            return y * self.scale

    return Net()


PATTERNS = patterns_among(list(vars().values()))
