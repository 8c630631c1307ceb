"""Branches and output in modules, and the many ways in which their code is reached."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from corpus.patterns.pattern import COND, OUTPUT, WHERE, pattern, patterns_among, rows, signs
from tests.equivalence import Call, call, compile_in_place, compile_then_patch, patch_the_class

Program = Callable[..., Any]


class Chooser(torch.nn.Module):
    """A branch and nothing else."""

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x * 2
        return x - 1


@pattern(rows, COND, zero_gradients=True)
def linear_in_one_arm() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                return self.linear(x)
            return x - 1

    return Net()


@pattern(rows, COND, zero_gradients=True)
def linear_in_each_arm() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = torch.nn.Linear(4, 3)
            self.two = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Linear(5, 3))

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                y = self.one(x)
            else:
                y = self.two(x)
            return y.relu()

    return Net()


@pattern(rows, WHERE)
def dropout_in_one_arm() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dropout = torch.nn.Dropout(0.5)

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                y = self.dropout(x * 2)
            else:
                y = x - 1
            return y + 1

    return Net()


@pattern(rows, COND, training_outcome=(WHERE,))
def random_numbers_in_one_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            y = x + torch.rand(2, 4)
        else:
            y = x - 1
        return y + torch.rand(2, 4)

    return program


@pattern(rows, COND, zero_gradients=True)
def batch_norm_in_one_arm() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(4)

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                y = self.norm(x)
            else:
                y = x - 1
            return y * 2

    return Net()


@pattern(rows, WHERE, zero_gradients=True)
def layer_norm_in_one_arm() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.LayerNorm(4)

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                x = self.norm(x)
            return x * 2

    return Net()


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


@pattern(signs, WHERE, graphs=2)
def branch_on_each_side_of_a_graph_break() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            y = x * 2
        else:
            y = x - 1
        torch._dynamo.graph_break()
        if y.max() > 3:
            return y + 1
        return y - 1

    return program


@pattern(signs, OUTPUT, graphs=2)
def output_on_each_side_of_a_graph_break() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        print("first", y.sum().item())
        torch._dynamo.graph_break()
        print("second", y.max().item())
        return y + 1

    return program


@pattern(rows, COND, zero_gradients=True)
def parameter_used_by_both_arms() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)
            self.scale = torch.nn.Parameter(torch.ones(4))

        def forward(self, x: Tensor) -> Tensor:
            x = self.linear(x)
            if x.sum() > 0:
                x = self.linear(x) * self.scale
            else:
                x = self.linear(x - 1)
            return x

    return Net()


PATTERNS = patterns_among(list(vars().values()))
