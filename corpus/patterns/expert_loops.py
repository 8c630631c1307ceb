"""Loops over what the data choose: the experts that were hit, the rows that are marked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from corpus.patterns.pattern import CHOICE, COND, GUARD, NO_MERGE, WHERE, pattern, patterns_among
from tests.equivalence import Call, call

Program = Callable[..., Any]

EXPERTS = 3


def tokens() -> Sequence[Call]:
    """Six tokens that go to all experts, to one of them, and to the first."""
    generator = torch.Generator().manual_seed(7)
    many = torch.randn(6, 4, generator=generator)
    return [call(many), call(many[:1].repeat(6, 1)), call(torch.zeros(6, 4))]


def masks() -> Sequence[Call]:
    """A matrix of three rows and a mask of three, of which all, one, or none is true."""
    x = torch.tensor([[1.0, -2.0], [0.5, 3.0], [-1.0, 4.0]])
    found = ([True, True, True], [False, True, False], [False, False, False])
    return [call(x.clone(), torch.tensor(mask)) for mask in found]


def sizes() -> Sequence[Call]:
    """Six rows, and three sizes of parts of them, none of which need be there."""
    x = torch.arange(12.0).reshape(6, 2)
    return [call(x.clone(), torch.tensor(found)) for found in ([1, 2, 3], [0, 6, 0], [3, 1, 2])]


class _Experts(torch.nn.Module):
    """A router and its experts."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.gate = torch.nn.Linear(4, EXPERTS, bias=False)
        self.experts = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(EXPERTS))

    def chosen(self, x: Tensor) -> Tensor:
        """Return which token goes to which expert, by experts."""
        return functional.one_hot(self.best(x), EXPERTS).T

    def best(self, x: Tensor) -> Tensor:
        found: Tensor = self.gate(x).argmax(dim=-1)
        return found


@pattern(tokens, COND, zero_gradients=True)
def experts_of_a_list_of_hits() -> Any:
    class Net(_Experts):
        def forward(self, x: Tensor) -> Tensor:
            chosen = self.chosen(x)
            out = torch.zeros_like(x)
            for expert in (chosen.sum(dim=-1) > 0).nonzero(as_tuple=True)[0].tolist():
                (at,) = torch.where(chosen[expert])
                out.index_add_(0, at, self.experts[expert](x[at]))
            return out

    return Net()


@pattern(tokens, COND, zero_gradients=True)
def experts_of_rows_of_hits() -> Any:
    class Net(_Experts):
        def forward(self, x: Tensor) -> Tensor:
            chosen = self.chosen(x)
            out = torch.zeros_like(x)
            for expert in torch.greater(chosen.sum(dim=-1), 0).nonzero():
                (at,) = torch.where(chosen[expert].squeeze(0))
                out.index_add_(0, at, self.experts[expert](x[at]))
            return out

    return Net()


@pattern(tokens, COND, zero_gradients=True)
def experts_as_slices_of_one_parameter() -> Any:
    class Net(_Experts):
        def __init__(self) -> None:
            super().__init__()
            self.weights = torch.nn.Parameter(torch.randn(EXPERTS, 4, 4))

        def forward(self, x: Tensor) -> Tensor:
            chosen = self.chosen(x)
            out = torch.zeros_like(x)
            for row in chosen.sum(dim=-1).nonzero():
                expert = row[0]
                if expert == EXPERTS:
                    continue
                (at,) = torch.where(chosen[expert])
                out.index_add_(0, at, functional.linear(x[at], self.weights[expert]))
            return out

    return Net()


@pattern(tokens, COND, zero_gradients=True)
def experts_by_name() -> Any:
    class Net(_Experts):
        def __init__(self) -> None:
            super().__init__()
            layers = {f"expert_{each}": torch.nn.Linear(4, 4) for each in range(EXPERTS)}
            self.named = torch.nn.ModuleDict(layers)

        def forward(self, x: Tensor) -> Tensor:
            chosen = self.chosen(x)
            out = torch.zeros_like(x)
            for row in chosen.sum(dim=-1).nonzero():
                (at,) = torch.where(chosen[row[0]])
                out.index_add_(0, at, self.named[f"expert_{row[0]}"](x[at]))
            return out

    return Net()


@pattern(tokens, COND, zero_gradients=True)
def experts_that_assign_by_mask() -> Any:
    class Net(_Experts):
        def forward(self, x: Tensor) -> Tensor:
            chosen = self.chosen(x).bool()
            out = torch.zeros_like(x)
            for expert in torch.nonzero(chosen.any(dim=-1), as_tuple=True)[0].tolist():
                out[chosen[expert]] = getattr(self.experts, f"{expert}")(x[chosen[expert]])
            return out

    return Net()


@pattern(tokens)
def all_experts_on_their_tokens() -> Any:
    class Net(_Experts):
        def forward(self, x: Tensor) -> Tensor:
            chosen = self.chosen(x)
            out = torch.zeros_like(x)
            for expert, layer in enumerate(self.experts):
                (at,) = torch.where(chosen[expert])
                out.index_add_(0, at, layer(x[at]))
            return out

    return Net()


@pattern(tokens, COND, zero_gradients=True)
def experts_that_have_any_token() -> Any:
    class Net(_Experts):
        def forward(self, x: Tensor) -> Tensor:
            best = self.best(x)
            out = torch.zeros_like(x)
            for expert in range(EXPERTS):
                here = best == expert
                if here.any():
                    out[here] = self.experts[expert](x[here])
            return out

    return Net()


@pattern(tokens, COND, zero_gradients=True)
def experts_with_a_number_of_tokens() -> Any:
    class Net(_Experts):
        def forward(self, x: Tensor) -> Tensor:
            chosen = self.chosen(x)
            out = torch.zeros_like(x)
            for expert in range(EXPERTS):
                (at,) = torch.where(chosen[expert])
                if at.numel() > 0:
                    out.index_add_(0, at, self.experts[expert](x[at]))
            return out

    return Net()


@pattern(masks, WHERE)
def sum_of_marked_numbers() -> Program:
    def program(x: Tensor, mask: Tensor) -> Tensor:
        total = x * 0
        for number in mask.nonzero().flatten().tolist():
            total = total + x[number] * (number + 1)
        return total

    return program


@pattern(masks, CHOICE, may_copy=True)
def last_marked_number_after_the_loop() -> Program:
    def program(x: Tensor, mask: Tensor) -> tuple[Tensor, int]:
        number = -1
        for number in torch.where(mask)[0].tolist():
            x = x + number
        return x, number

    return program


@pattern(masks, NO_MERGE, WHERE)
def marked_rows_until_one_is_large() -> Program:
    def program(x: Tensor, mask: Tensor) -> Tensor:
        total = x[0] * 1
        for number in mask.nonzero(as_tuple=True)[0].tolist():
            total = total + x[number]
            if total.sum() > 3:
                break
        return total

    return program


@pattern(masks, GUARD, WHERE, training=False)
def marked_rows_must_be_positive() -> Program:
    def program(x: Tensor, mask: Tensor) -> Tensor:
        for row in torch.argwhere(mask):
            if x[row[0]].sum() < 0:
                raise ValueError(f"row {row.item()} is negative")
        return x * 2

    return program


@pattern(masks, WHERE)
def marked_rows_through_a_helper() -> Program:
    def scaled(x: Tensor, numbers: list[int]) -> Tensor:
        for number in numbers:
            x = x * (number + 2)
        return x

    def program(x: Tensor, mask: Tensor) -> Tensor:
        return scaled(x, mask.nonzero()[:, 0].tolist()) + 1

    return program


@pattern(masks, WHERE, training=False)
def how_many_are_marked_and_which() -> Program:
    def program(x: Tensor, mask: Tensor) -> Tensor:
        numbers = mask.nonzero(as_tuple=True)[0].tolist()
        for number in numbers:
            x = x - number
        return x * len(numbers)

    return program


@pattern(sizes)
def parts_of_sizes_in_a_tensor() -> Program:
    def program(x: Tensor, sizes: Tensor) -> Tensor:
        parts = x.split(sizes.tolist())
        return torch.cat([part * (at + 1) for at, part in enumerate(parts)])

    return program


@pattern(sizes, inductor_backward=False)
def rows_cut_off_by_sizes_in_a_tensor() -> Program:
    def program(x: Tensor, sizes: Tensor) -> Tensor:
        sums = []
        for size in sizes.tolist():
            head, x = x[:size], x[size:]
            sums.append(head.sum(dim=0))
        return torch.stack(sums)

    return program


@pattern(sizes, WHERE)
def branch_on_each_number_of_a_list() -> Program:
    def program(x: Tensor, sizes: Tensor) -> Tensor:
        for size in sizes.tolist():
            x = x * 2 + size if size > 2 else x - 1
        return x

    return program


PATTERNS = patterns_among(list(vars().values()))
