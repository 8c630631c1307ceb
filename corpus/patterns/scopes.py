"""Branches inside `with` and `try`, in closures, methods and decorated or recursive functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from corpus.patterns.pattern import (
    COND,
    OUTPUT,
    SPLIT,
    WHERE,
    pairs,
    pattern,
    patterns_among,
    refused,
    rows,
    signs,
)
from tests.equivalence import Call, call

Program = Callable[..., Any]


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
def closure_over_a_variable_of_the_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        scale = x.abs().mean()

        def apply(y: Tensor) -> Tensor:
            if y.sum() > 0:
                return y / scale
            return y * scale

        return apply(x) + apply(-x)

    return program


@pattern(signs, WHERE)
def nonlocal_updated_in_an_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        total = x.sum()

        def add(y: Tensor) -> None:
            nonlocal total
            if y.max() > 0.75:
                total = total + y.max()

        for part in (x, -x, x * 0.1):
            add(part)
        return x * total

    return program


@pattern(signs, SPLIT, WHERE)
def nonlocal_number_counted_in_an_arm() -> Program:
    def program(x: Tensor) -> tuple[Tensor, int]:
        hits = 0

        def visit(y: Tensor) -> Tensor:
            nonlocal hits
            if y.sum() > 0:
                hits += 1
                return y * 2
            return y

        return visit(x) + visit(-x), hits

    return program


@pattern(signs, WHERE)
def lambda_with_a_ternary() -> Program:
    def program(x: Tensor) -> Tensor:
        soften = lambda y: y.tanh() if y.abs().max() > 3.5 else y * 0.5  # noqa: E731
        return soften(x) + soften(x * 2)

    return program


@pattern(signs, WHERE)
def lambdas_in_a_table() -> Program:
    steps = [lambda y: y if y.sum() > 0 else -y, lambda y: y * 2 if y.max() > 2 else y + 1]

    def program(x: Tensor) -> Tensor:
        for step in steps:
            x = step(x * 1)
        return x

    return program


@pattern(signs, WHERE)
def property_class_method_and_static_method() -> Any:
    class Norm(nn.Module):
        limit = 3.5

        @property
        def margin(self) -> float:
            return self.limit / 2

        @classmethod
        def clipped(cls, x: Tensor) -> Tensor:
            return x * (cls.limit / 4) if x.norm() > cls.limit else x * 1

        @staticmethod
        def centred(x: Tensor) -> Tensor:
            if x.mean().abs() > 1:
                x = x - 1
            return x

        def forward(self, x: Tensor) -> Tensor:
            y = self.clipped(x) + self.centred(x)
            if y.max() > self.margin:
                y = y * 0.5
            return y

    return Norm()


@pattern(signs, WHERE)
def super_called_before_and_inside_an_arm() -> Any:
    class Base(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                return x * 2
            return x - 1

    class Derived(Base):
        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            if y.max() > 3:
                y = super().forward(-y)
            return y

    return Derived()


@pattern(signs, WHERE)
def decorator_that_looks_at_the_result() -> Program:
    def finite(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Tensor:
            result = function(*args, **kwargs)
            if not torch.isfinite(result).all():
                return torch.nan_to_num(result)
            return result

        return checked

    @finite
    def program(x: Tensor, *, power: float = 0.5) -> Tensor:
        return x**power + 1

    return program


def _many() -> list[Call]:
    one = torch.tensor([1.0, -2.0])
    return [call(one.clone(), one * 2, bias=one + 1), call(-one, one * 0, bias=one, scale=3.0)]


@pattern(_many, WHERE, may_copy=True, zero_gradients=True, graphs=2, recompiles=1)
def star_arguments_forwarded() -> Program:
    def combine(*terms: Tensor, scale: float = 2.0, **named: Tensor) -> Tensor:
        total = terms[0]
        for term in terms[1:]:
            if term.sum() < 0:
                total = total + term * scale
        for name in sorted(named):
            total = total + named[name] if total.sum() > 0 else total - named[name]
        return total

    def program(*args: Tensor, **kwargs: Any) -> Tensor:
        return combine(*args, **kwargs)

    return program


@pattern(pairs, OUTPUT, WHERE)
def helper_called_twice_in_one_expression() -> Program:
    def norm(x: Tensor) -> Tensor:
        size = x.norm()
        if size > 3:
            print("large", round(float(size), 3))
            return x / size
        return x * 2

    def program(x: Tensor, y: Tensor) -> Tensor:
        return norm(x) + norm(y - 1)

    return program


@pattern(
    signs,
    refused("generator"),
    graphs=None,
    because=(
        "One side yields and the other does not; a frame that is suspended on one side only "
        "cannot become an arm."
    ),
)
def generator_with_a_branch() -> Program:
    # The frame of a generator is suspended between its values: there is no arm to call.
    def parts(x: Tensor) -> Iterator[Tensor]:
        for step in range(2):
            if x.sum() > step:
                yield x * 2
            yield x - step

    def program(x: Tensor) -> list[Tensor]:
        return list(parts(x))

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
