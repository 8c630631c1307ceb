"""Branches in closures, decorators, hooks, methods and base classes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from corpus.patterns.pattern import OUTPUT, WHERE, pairs, pattern, patterns_among, rows, signs
from tests.equivalence import Call, call, compile_in_place, compile_then_patch, patch_the_class

Program = Callable[..., Any]


@pattern(signs, WHERE)
def variable_that_a_nested_function_reads() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            y = x * 2
        else:
            y = x - 1

        def reader() -> Tensor:
            return y + 1

        return reader() * y

    return program


class Chooser(torch.nn.Module):
    """A branch and nothing else."""

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x * 2
        return x - 1


@pattern(signs, WHERE)
def branch_in_a_submodule() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = Chooser(), Chooser()

        def forward(self, x: Tensor) -> Tensor:
            return self.one(x) + self.two(x - 3)

    return Net()


@pattern(signs, WHERE)
def arm_that_calls_a_module_with_a_branch() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.chooser = Chooser()

        def forward(self, x: Tensor) -> Tensor:
            if x.max() > 0:
                y = self.chooser(x) * 3
            else:
                y = x * 5
            return y

    return Net()


@pattern(signs, WHERE)
def sequential_of_modules() -> Any:
    return torch.nn.Sequential(Chooser(), torch.nn.ReLU(), Chooser())


@pattern(signs, WHERE, way=compile_in_place)
def module_compiled_in_place() -> Any:
    return Chooser()


@pattern(signs, WHERE, way=compile_then_patch)
def module_compiled_before_it_is_patched() -> Any:
    return Chooser()


@pattern(signs, WHERE, way=patch_the_class)
def class_patched_before_the_instance_exists() -> Any:
    class Net(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                return x * 2
            return x - 1

    return Net()


@pattern(signs, OUTPUT, WHERE)
def forward_of_a_base_class() -> Any:
    class Base(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                return x * 2
            return x - 1

    class Net(Base):
        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            print("between")
            return super().forward(y - 5)

    return Net()


@pattern(signs, WHERE)
def super_inside_an_arm() -> Any:
    class Base(torch.nn.Module):
        def scaled(self, x: Tensor) -> Tensor:
            return x * 3

    class Net(Base):
        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                y = super().scaled(x)
            else:
                y = x - 1
            return y

    return Net()


@pattern(signs, WHERE)
def methods_properties_and_static_methods() -> Any:
    class Net(torch.nn.Module):
        @property
        def factor(self) -> int:
            return 3

        @staticmethod
        def reduced(x: Tensor) -> Tensor:
            return x.sum()

        @classmethod
        def shifted(cls, x: Tensor) -> Tensor:
            if cls.reduced(x) > 0:
                return x + 1
            return x - 1

        def chosen(self, x: Tensor) -> Tensor:
            if self.reduced(x) > 0:
                return x * self.factor
            return x

        def forward(self, x: Tensor) -> Tensor:
            return self.chosen(x + 1) + self.shifted(x)

    return Net()


def _with_keywords() -> list[Call]:
    x = torch.tensor([1.0, 2.0])
    return [call(x.clone(), 2, extra=x + 1), call(-x, 2, extra=x + 1)]


@pattern(_with_keywords, OUTPUT, WHERE, zero_gradients=True)
def variable_arguments() -> Program:
    def program(*values: Any, scale: float = 2.0, **named: Tensor) -> Tensor:
        x, count = values
        print(len(values), sorted(named), scale)
        if x.sum() > 0:
            return x * scale + named["extra"]
        return x - count

    return program


@pattern(signs, WHERE)
def defaults_of_all_kinds() -> Program:
    def program(
        x: Tensor, /, shift: float = 1.5, *, scale: float = 2.0, other: Tensor | None = None
    ) -> Tensor:
        if x.sum() > 0:
            y = x * scale
        else:
            y = x - shift
        return y if other is None else y + other

    return program


@pattern(signs, WHERE)
def decorated_forward() -> Any:
    def counted(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        @functools.wraps(function)
        def wrapper(self: Any, *arguments: Any, **keywords: Any) -> Tensor:
            return function(self, *arguments, **keywords) + 1

        return wrapper

    class Net(torch.nn.Module):
        @counted
        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                return x * 2
            return x - 1

    return Net()


@pattern(signs, WHERE, graphs=3)
def forward_hooks() -> Any:
    def before(module: Any, arguments: tuple[Tensor]) -> tuple[Tensor]:
        (x,) = arguments
        return (x + 1,) if x.max() > 2 else (x - 1,)

    def after(module: Any, arguments: tuple[Tensor], result: Tensor) -> Tensor:
        if result.sum() > 0:
            return result * 3
        return result + 0.5

    net = Chooser()
    net.register_forward_pre_hook(before)
    net.register_forward_hook(after)
    return net


@pattern(signs, WHERE)
def bound_method() -> Any:
    class Holder:
        def __init__(self) -> None:
            self.scale = 3

        def method(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                return x * self.scale
            return x - 1

    return Holder().method


@pattern(signs, WHERE)
def function_with_a_closure() -> Program:
    scale, offset = torch.tensor(3.0), 2

    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x * scale
        return x - offset

    return program


@pattern(signs, WHERE)
def nested_function_with_a_branch() -> Program:
    def program(x: Tensor) -> Tensor:
        scale = x.max()

        def inner(y: Tensor, shift: float = 1.0) -> Tensor:
            if y.sum() > 0:
                return y * scale
            return y - shift

        return inner(x) + inner(x - 2, shift=0.5)

    return program


@pattern(signs, WHERE)
def function_inside_an_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            scaled = lambda y: y * x  # noqa: E731
            y = scaled(x + 1)
        else:
            y = sum([x * each for each in (1, 2)])
        return y

    return program


@pattern(signs, WHERE)
def recursion_that_ends_early() -> Program:
    def halve(x: Tensor, depth: int) -> Tensor:
        if depth == 0 or x.abs().max() < 0.5:
            return x * 1
        return halve(x / 2, depth - 1) + 0.25

    def program(x: Tensor) -> Tensor:
        return halve(x, 4)

    return program


@pattern(rows, WHERE)
def two_outputs_and_a_branch_before_each() -> Any:
    class TwoHeads(nn.Module):
        def pooled(self, x: Tensor) -> Tensor:
            if x.mean() > 0:
                return x.mean(0)
            return x.amax(0)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.pooled(x), self.pooled(-x)

    return TwoHeads()


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


PATTERNS = patterns_among(list(vars().values()))
