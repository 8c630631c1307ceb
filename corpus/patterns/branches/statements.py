"""Branches on a plain comparison: `if`, `elif`, nesting, early returns, layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpus.patterns.pattern import COND, WHERE, pattern, patterns_among, rows, signs
from tests.equivalence import Call, call

Program = Callable[..., Any]


@pattern(signs, WHERE)
def if_else() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            y = x * 2
        else:
            y = x - 1
        return y + 1

    return program


@pattern(signs, WHERE)
def if_without_else() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x + 1
        if x.sum() > 0:
            y = y * 3
        return y - 1

    return program


@pattern(signs, WHERE)
def early_return() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x * 2
        return x - 1

    return program


@pattern(signs, WHERE)
def early_returns_in_sequence() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 5:
            return x * 2
        y = x + 1
        if y.min() < -2:
            return y - 1
        z = y * y
        if z.max() > 4:
            return z / 2
        return z

    return program


@pattern(signs, WHERE)
def early_return_of_several_values() -> Program:
    def program(x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        if x.sum() > 0:
            return x * 2, {"a": x + 1, "b": x + 2}
        return x - 1, {"a": x - 1, "b": x - 2}

    return program


@pattern(signs, WHERE)
def elif_chain() -> Program:
    def program(x: Tensor) -> Tensor:
        total = x.sum()
        if total > 5:
            y = x * 2
        elif total > 0:
            y = x * 3
        elif total < -5:
            y = x - 1
        else:
            y = x.abs()
        return y

    return program


@pattern(signs, WHERE)
def nested_ifs() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            if x.max() > 2:
                y = x * 2
            else:
                y = x * 3
        else:
            y = x - 1
            if x.min() < -3:
                y = y * 5
        return y

    return program


@pattern(signs, WHERE)
def several_variables_bound() -> Program:
    def program(x: Tensor) -> tuple[Tensor, Tensor, int]:
        kept = 4
        if x.sum() > 0:
            a, b = x * 2, x + 1
        else:
            b = x - 1
            a = b * b
        return a + b, b, kept

    return program


@pattern(signs, WHERE, may_copy=True)
def containers_bound() -> Program:
    def program(x: Tensor) -> tuple[list[Tensor], dict[str, Tensor]]:
        if x.sum() > 0:
            items, names = [x, x * 2], {"one": x + 1}
        else:
            items, names = [x - 1, x], {"one": x - 1}
        items.append(x * 0)
        names["two"] = items[0]
        return items, names

    return program


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


@pattern(signs, WHERE)
def unpacking_and_augmented_assignment() -> Program:
    def program(x: Tensor) -> Tensor:
        a, *rest = x * 2, x + 1, x + 2
        if x.sum() > 0:
            a, b = rest
            a = a - b * 2
        else:
            b = a + rest[0]
        return a + b

    return program


@pattern(signs, WHERE)
def guard_of_a_match_statement() -> Program:
    def program(x: Tensor, mode: str = "auto") -> Tensor:
        match mode:
            case "auto" if x.sum() > 0:
                return x * 2
            case "auto":
                return x - 1
            case _:
                return x

    return program


@pattern(rows, COND, zero_gradients=True)
def expert_chosen_between_operands() -> Any:
    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(4)
            self.small, self.large = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(x) + (self.small(x) if x.mean() > 0 else self.large(x)) * 0.5

    return Mixture()


def _grades() -> list[Call]:
    return [call(torch.tensor([0.5, value])) for value in (-8.0, -2.0, 0.5, 2.0, 4.5, 7.0, 30.0)]


@pattern(_grades, WHERE)
def ten_early_returns() -> Program:
    def program(x: Tensor) -> Tensor:
        total = x.sum()
        if total < -5:
            return x * 0
        if total < -3:
            return x + 1
        if total < -1:
            return x.abs()
        if total < 0:
            return x - total
        if total < 1.5:
            return x * total
        if total < 3:
            return x.exp()
        if total < 5:
            return x.sqrt() + 2
        if total < 6:
            return x.sin()
        if total < 8:
            return x / total
        if total < 20:
            return x - 20
        return x.clamp(max=10)

    return program


@pattern(_grades, WHERE)
def ten_ifs_in_sequence() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 1
        if y.sum() < 0:
            y = y.abs()
        if y.max() > 3:
            y = y / y.max()
        if y.min() > 0.2:
            y = y - 0.2
        if y.mean() > 0.4:
            y = y * 0.5
        if (y == 0).any():
            y = y + 1
        if y[0] > y[1]:
            y = y.flip(0)
        if y.std() > 0.1:
            y = (y - y.mean()) / y.std()
        if y.sum() > 1:
            y = y.sigmoid()
        if y[1] > 0:
            y = y + x
        if not y.prod() > 0:
            y = y.neg()
        return y

    return program


@pattern(_grades, WHERE)
def branches_four_deep() -> Program:
    def program(x: Tensor) -> Tensor:
        total, first = x.sum(), x[0]
        y = x
        if total > 0:
            if total > 2:
                if total > 6:
                    y = x / total if total > 20 else x - total
                elif first < 1:
                    y = x.sqrt()
            else:
                y = x + first
        else:
            if total > -2:
                y = x * 2
            elif total > -6:
                y = x.abs()
                if y.max() > 1:
                    y = y.log()
                    if y.min() < 0:
                        y = y - y.min()
        return y * 2

    return program


@pattern(_grades, WHERE)
def early_returns_four_deep() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            if x.max() > 1:
                if x.max() > 5:
                    if x.max() > 10:
                        return x / 10
                    return x - 5
                x = x + 1
            x = x * 2
        elif x.min() < -5:
            return -x
        return x.cos()

    return program


def _images() -> list[Call]:
    image = torch.linspace(-1.0, 1.0, 8).reshape(1, 8)
    return [call(image * scale) for scale in (0.1, 3.0, 40.0)]


@pattern(_images, COND, zero_gradients=True)
def classifier_with_two_early_exits() -> Any:
    class Branchy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.middle, self.last = (nn.Linear(8, 8) for _ in range(3))
            self.exits = nn.ModuleList(nn.Linear(8, 3) for _ in range(3))
            self.threshold = 0.6

        def confident(self, logits: Tensor) -> Tensor:
            return F.softmax(logits, dim=-1).max() > self.threshold

        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(self.stem(x))
            logits = self.exits[0](x)
            if self.confident(logits):
                return logits
            x = F.relu(self.middle(x))
            logits = self.exits[1](x)
            if self.confident(logits):
                return logits
            return self.exits[2](F.relu(self.last(x)))

    return Branchy()


PATTERNS = patterns_among(list(vars().values()))
