"""Checks with effects, output or operations that may fail around them."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from corpus.patterns.pattern import CALL, GUARD, OUTPUT, WHERE, pattern, patterns_among, signs
from corpus.patterns.shared_exceptions import Diverged, OutOfRange, Rejected, WrongTotal
from tests.equivalence import Call, call

Program = Callable[..., Any]


def _counts() -> list[Call]:
    """A vector, and a count as a tensor."""
    return [call(torch.arange(6.0), torch.tensor(count)) for count in (3, 1, 0, 6)]


@pattern(_counts, GUARD)
def check_of_a_number_that_is_a_size() -> Program:
    def program(x: Tensor, count: Tensor) -> Tensor:
        n = int(count.abs())
        if n > 4:
            raise ValueError(f"{n} is too many")
        return torch.zeros(n) + x[:n]

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


@pattern(signs, GUARD, recompiles=1, graphs=2)
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


@pattern(signs, GUARD, OUTPUT)
def warned_before_a_check_fails() -> Program:
    def check(x: Tensor) -> None:
        print("checking", x.sum().item())
        if x.sum() < 0:
            warnings.warn("negative", stacklevel=2)
            raise ValueError("negative")

    def program(x: Tensor) -> Tensor:
        check(x)
        print("fine")
        return x * 2

    return program


@pattern(signs, GUARD, OUTPUT, WHERE)
def output_store_and_check_in_one_arm() -> Any:
    class Monitor(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.worst = torch.zeros(())

        def forward(self, x: Tensor) -> Tensor:
            if x.min() < 0:
                print("negative input", x.min())
                self.worst = torch.minimum(self.worst, x.detach().min())
                if self.worst < -3.5:
                    raise ValueError(f"worst value {self.worst.item():.1f}")
                x = x.clamp(min=0)
            return x * 2

    return Monitor()


@pattern(signs, CALL, OUTPUT)
def check_of_a_tensor_behind_output() -> Program:
    def program(x: Tensor) -> Tensor:
        print("before", x)
        torch._check_tensor_all_with(IndexError, x > -4, lambda: f"small: {x}")
        print("behind")
        return x * 2

    return program


@pattern(signs, CALL, GUARD)
def a_check_behind_a_draw() -> Program:
    def program(x: Tensor) -> Tensor:
        chance = random.random()
        if x.sum() < 0:
            raise ValueError(f"drawn {chance}, then {random.random()}")
        return x * chance

    return program


PATTERNS = patterns_among(list(vars().values()))
