"""Checks in functions, modules, hooks, loops and `with` blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from corpus.patterns.pattern import GUARD, OUTPUT, WHERE, pattern, patterns_among, rows, signs
from corpus.patterns.shared_exceptions import BadBatch, OutOfRange, Rejected, WrongTotal
from tests.equivalence import Call, call

Program = Callable[..., Any]


def masks() -> Sequence[Call]:
    """A matrix of three rows and a mask of three, of which all, one, or none is true."""
    x = torch.tensor([[1.0, -2.0], [0.5, 3.0], [-1.0, 4.0]])
    found = ([True, True, True], [False, True, False], [False, False, False])
    return [call(x.clone(), torch.tensor(mask)) for mask in found]


@pattern(masks, GUARD, WHERE, training=False)
def marked_rows_must_be_positive() -> Program:
    def program(x: Tensor, mask: Tensor) -> Tensor:
        for row in torch.argwhere(mask):
            if x[row[0]].sum() < 0:
                raise ValueError(f"row {row.item()} is negative")
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
def check_under_no_grad() -> Program:
    def program(x: Tensor) -> Tensor:
        with torch.no_grad():
            if x.sum() < 0:
                raise ValueError("negative")
        return x * 2

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
def check_in_each_iteration_of_a_loop() -> Program:
    def program(x: Tensor) -> Tensor:
        for index in range(3):
            if x[index] < -3.5:
                raise IndexError(f"item {index}: {x[index].item()}")
            x = x + 1
        return x

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


@pattern(signs, GUARD)
def check_in_a_property_getter() -> Any:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("low", torch.tensor(-3.5))
            self.x: Tensor | None = None

        @property
        def scale(self) -> Tensor:
            if self.given.min() < self.low:
                raise Rejected(self.given.tolist())
            return self.low * 2

        def forward(self, x: Tensor) -> Tensor:
            self.given = x.detach()
            return x * self.scale

    return Net()


@pattern(signs, GUARD, OUTPUT)
def check_in_a_forward_hook() -> Any:
    def finite(module: nn.Module, given: tuple[Tensor, ...], result: Tensor) -> None:
        print("hook of", type(module).__name__)
        if not torch.isfinite(result).all():
            raise FloatingPointError(f"{type(module).__name__} gave {result.tolist()}")

    class Root(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sqrt()

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.root = Root()
            self.root.register_forward_hook(finite)

        def forward(self, x: Tensor) -> Tensor:
            return self.root(x) + 1

    return Net()


@pattern(signs, GUARD)
def check_in_a_pre_hook() -> Any:
    def positive(module: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        (x,) = given
        assert (x > -3.5).all(), x.min().item()
        return (x * 2,)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.linear.register_forward_pre_hook(positive)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x)

    return Net()


@pattern(signs, GUARD)
def assertion_in_a_comprehension() -> Program:
    def positive(value: Tensor) -> Tensor:
        assert value > -2.5, f"{value.item():.1f} is too small"
        return value

    def program(x: Tensor) -> Tensor:
        return torch.stack([positive(each) * 2 for each in x.unbind()])

    return program


@pattern(signs, GUARD)
def check_under_autocast_in_a_callee() -> Program:
    def check(x: Tensor) -> None:
        if (x @ x) > 15:
            raise OverflowError(str((x @ x).dtype))

    def program(x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            check(x.detach())
        return x * 2

    return program


@pattern(signs, GUARD)
def message_computed_in_a_block_of_settings() -> Any:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.eye(3) * 1.37)
            self.register_buffer("calls", torch.zeros(2**17))  # too large to be put back

        def check(self, x: Tensor) -> None:
            if (self.weight @ x).sum() < 0:
                modes = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
                raise Rejected([(self.weight @ x).sum().item(), str(self.weight @ x), *modes])

        def forward(self, x: Tensor) -> Tensor:
            self.calls.add_(1)
            with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
                self.check(x)
            return self.weight @ x

    return Net()


@pattern(signs, GUARD)
def check_in_a_function_under_no_grad() -> Program:
    @torch.no_grad()
    def check(x: Tensor) -> float:
        norm = x.norm()
        if norm > 4:
            raise OverflowError(f"norm {norm.item():.3f}, {torch.is_grad_enabled()}")
        return 2.0

    def program(x: Tensor) -> Tensor:
        return x * check(x)

    return program


def _announced(rows: Tensor) -> Iterator[Tensor]:
    for number, row in enumerate(rows):
        if row.isnan().any():
            raise ValueError("not a number", number)
        print(f"row {number}: {row.sum().item():.2f}")
        yield row * number


@pattern(rows, GUARD, OUTPUT)
def generator_that_checks_and_prints() -> Program:
    def program(x: Tensor) -> Tensor:
        return torch.stack([row + 1 for row in _announced(x.log1p())])

    return program


PATTERNS = patterns_among(list(vars().values()))
