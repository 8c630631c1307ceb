"""Checks among changes of state: what was changed before one that fails is there, nothing later."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from corpus.patterns.pattern import CALL, GUARD, OUTPUT, WHERE, pattern, patterns_among, signs

Program = Callable[..., Any]


class Aborted(BaseException):
    """What ``except Exception`` does not catch."""


class Rejected(ValueError):
    """Names the values that were rejected."""

    def __init__(self, values: list[Any]) -> None:
        super().__init__(f"rejected {len(values)} values")
        self.values = values


@pattern(signs, GUARD, recompiles=2, graphs=3)
def check_between_changes_of_a_list_and_a_dictionary() -> Any:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []
            self.counts = {"calls": 0}

        def forward(self, x: Tensor) -> Tensor:
            self.seen.append("before")
            self.counts["started"] = True
            if x.sum() < 0:
                raise Rejected(x.tolist())
            self.seen.append("after")
            self.counts["ended"] = True
            return x * 2

    return Net()


@pattern(signs, GUARD, recompiles=2, graphs=3)
def check_between_changes_of_numbers() -> Any:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.step, self.good = 0, 0

        def forward(self, x: Tensor) -> Tensor:
            self.step += 1
            if x.sum() < 0:
                raise Rejected([self.step])
            self.good += 1
            return x * self.step

    return Net()


_TOTALS = {"before": 0.0, "after": 0.0}
_LAST: Any = None


@pattern(signs, GUARD)
def check_between_changes_of_globals() -> Program:
    def program(x: Tensor) -> Any:
        global _LAST
        _LAST = "started"
        if x.sum() < 0:
            raise Rejected([len(_LAST)])
        _LAST = "ended"
        return x * 2, _LAST

    return program


@pattern(signs, GUARD, training=False)
def check_between_changes_of_an_argument() -> Program:
    def program(x: Tensor) -> Tensor:
        x.add_(1)
        if x.sum() < -2:
            raise Rejected(x.tolist())
        x.mul_(3)
        return x.sum()

    return program


@pattern(signs, GUARD)
def check_between_changes_of_a_buffer_and_an_attribute() -> Any:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(3))
            self.last: Tensor | None = None

        def forward(self, x: Tensor) -> Tensor:
            self.total += x.detach()
            self.last = self.total * 2
            if x.sum() < 0:
                raise Rejected(self.total.tolist())
            self.last = self.last + 1
            self.total.zero_()
            return x + self.last

    return Net()


@pattern(signs, CALL, GUARD)
def check_between_random_numbers_of_python_and_torch() -> Program:
    def program(x: Tensor) -> Tensor:
        noise = torch.rand(3) + random.uniform(0, 1)
        if x.sum() < 0:
            raise Rejected(noise.tolist())
        return x + noise * torch.randn(3) * random.uniform(0, 1)

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


@pattern(signs, GUARD)
def exception_made_by_a_function() -> Program:
    def error_of(x: Tensor, name: str) -> Exception:
        return Rejected([x.min().item(), x.max().item(), len(name)])

    def program(x: Tensor) -> Tensor:
        if x.sum() < 0:
            raise error_of(x, "x")
        return x * 2

    return program


@pattern(signs, WHERE)
def message_collected_in_a_list_that_is_returned() -> Program:
    def program(x: Tensor) -> Any:
        problems = []
        if x.sum() < 0:
            problems.append(f"negative sum {x.sum().item():.2f}")
        return x * 2, problems

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


@pattern(signs, OUTPUT)
def texts_put_together_before_they_are_written() -> Program:
    def program(x: Tensor) -> Tensor:
        line = "sum " + f"{x.sum().item():.2f}"
        line += f" of {x.numel()}"
        print(line + "!", " {} ".join([line, "or", f"{x.max().item()}"]))
        print(", ".join(f"{each.item():.1f}" for each in x))
        return x * 2

    return program


@pattern(signs, GUARD)
def both_sides_of_an_inner_branch_raise() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.min() < 0:
            if x.max() < 0:
                raise ValueError("all negative")
            else:
                raise KeyError(f"{(x < 0).sum().item()} negative")
        return x.sqrt()

    return program


@pattern(signs, GUARD, WHERE)
def checks_before_in_and_behind_an_arm() -> Any:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("state", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            if x.max() > 100:
                raise ValueError("before")
            if x.sum() > 0:
                self.state = self.state + 1
                if x.max() > 2.5:
                    raise OverflowError(self.state.tolist())
                y = x * 2
            else:
                self.state = self.state - 1
                y = x - 1
            if y.min() < -4.5:
                raise Rejected(self.state.tolist())
            self.state = self.state * 2
            return y + self.state

    return Net()


@pattern(signs, CALL)
def check_of_all_elements_by_torch() -> Program:
    def program(x: Tensor) -> Tensor:
        torch._check_tensor_all(x > -3.5, lambda: f"too small: {x.tolist()}")
        return x * 2

    return program


@pattern(signs, CALL)
def check_of_a_value_by_torch() -> Program:
    def program(x: Tensor) -> Tensor:
        count = (x > 0).sum().item()
        torch._check_value(count > 1, lambda: f"{count} are positive")
        torch._check_index(count < 9)
        return x * 2

    return program


@pattern(signs)
def assertion_by_torch_with_a_message_of_the_data() -> Program:
    def program(x: Tensor) -> Tensor:
        torch._assert(x.sum() > 0, f"the sum is {x.sum().item():.1f}")
        return x * 2

    return program


PATTERNS = patterns_among(list(vars().values()))
