"""Loops with a data-dependent number of iterations, or over data-dependent items."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from corpus.patterns.pattern import (
    CHOICE,
    COND,
    LOOP,
    NO_MERGE,
    SPLIT,
    WHERE,
    pattern,
    patterns_among,
    rows,
    signs,
)
from tests.equivalence import Call, call

Program = Callable[..., Any]


def _vectors() -> list[Call]:
    """Some positive numbers, none, all, and one."""
    rows = ([1, -2, 3, -4, 2], [-1, -2, -3, -4, -5], [1, 2, 3, 1, 2], [0, 0, 0, 0, 1])
    return [call(torch.tensor(each, dtype=torch.float32)) for each in rows]


@pattern(_vectors)
def experts_that_are_hit() -> Program:
    def program(x: Tensor) -> Tensor:
        result = torch.zeros_like(x)
        for expert in range(3):
            (hit,) = torch.where(x.detach().abs().long() % 3 == expert)
            result.index_add_(0, hit, x[hit] * (expert + 1))
        return result

    return program


@pattern(_vectors, LOOP, training=False)
def as_many_turns_as_something_was_picked() -> Program:
    def program(x: Tensor) -> Tensor:
        total = torch.zeros(3)
        for turn in range(len(x[x > 0])):
            total += x.sum() * turn
        return total

    return program


@pattern(signs, LOOP, training=False)
def while_on_a_tensor() -> Program:
    def program(x: Tensor) -> Tensor:
        while x.sum() < 10:
            x = x + 1
        return x

    return program


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


@pattern(signs, LOOP, training=False, may_copy=True)
def halved_until_small() -> Program:
    def program(x: Tensor) -> Tensor:
        while x.abs().max() > 1:
            x = x / 2
        return x

    return program


@pattern(signs, LOOP, training=False, may_copy=True)
def turns_counted_beside_the_loop() -> Program:
    def program(x: Tensor) -> tuple[Tensor, int]:
        turns = 0
        while x.sum() < 4:
            x = x + 1
            turns += 1
        return x, turns

    return program


@pattern(signs, CHOICE, LOOP, training=False, may_copy=True)
def turns_bounded_by_a_budget() -> Program:
    def program(x: Tensor, budget: int = 5) -> Tensor:
        turn = 0
        while x.norm() > 1.5 and turn < budget:
            x = x * 0.7
            turn += 1
        return x

    return program


@pattern(signs, LOOP, training=False, may_copy=True)
def endless_loop_with_a_break() -> Program:
    def program(x: Tensor) -> Tensor:
        while True:
            if x.sum() > 4:
                break
            x = x + x.abs().mean()
        return x

    return program


@pattern(signs, LOOP, training=False)
def endless_loop_with_a_return() -> Program:
    def program(x: Tensor) -> Tensor:
        estimate = x.abs() + 1
        while True:
            following = 0.5 * (estimate + x.abs() / estimate)
            if (following - estimate).abs().max() < 1e-3:
                return following
            estimate = following

    return program


def _radicands() -> list[Call]:
    return [call(torch.tensor(each)) for each in ([1.0, 1.0], [4.0, 9.0], [100.0, 0.5])]


@pattern(_radicands, LOOP, training=False)
def newton_until_it_converges() -> Program:
    def program(a: Tensor) -> Tensor:
        root = torch.ones_like(a)
        error = (root * root - a).abs().max()
        while error > 1e-3:
            root = root - (root * root - a) / (2 * root)
            error = (root * root - a).abs().max()
        return root

    return program


@pattern(rows, CHOICE, LOOP, training=False)
def halting_in_a_while_loop() -> Any:
    class Halting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.Linear(4, 4)
            self.max_steps = 4

        def forward(self, state: Tensor) -> Tensor:
            halted, step = torch.zeros(state.shape[0]), 0
            while (halted < 0.99).any() and step < self.max_steps:
                state = self.cell(state).tanh()
                halted = halted + state.sigmoid().mean(1)
                step += 1
            return state

    return Halting()


def _sizes() -> list[Call]:
    return [call(torch.tensor([1.0, -2.0]), torch.tensor(count)) for count in (3, 0, 5)]


@pattern(_sizes, LOOP, training=False, may_copy=True)
def repeated_as_often_as_a_tensor_says() -> Program:
    def program(x: Tensor, count: Tensor) -> Tensor:
        for _ in range(int(count)):
            x = x * 0.5 + 1
        return x

    return program


@pattern(_sizes, LOOP, may_copy=True)
def smoothed_as_often_as_the_data_say() -> Program:
    def program(x: Tensor, count: Tensor) -> Tensor:
        steps = int(count * 1.5) + 1
        for step in range(1, steps):
            x = x + (x.mean() - x) / 4 + step
        return x

    return program


@pattern(_sizes, LOOP, SPLIT, may_copy=True)
def budget_from_a_tensor_that_is_not_always_used_up() -> Program:
    def program(x: Tensor, count: Tensor) -> Tensor:
        for _ in range((count + 2).item()):
            x = x * 0.5 + 1
            if x.sum() > 2:
                break
        else:
            x = x - 10
        return x

    return program


@pattern(_sizes, LOOP, training=False, may_copy=True)
def rows_up_to_a_length_taken_out_of_a_tensor() -> Program:
    def program(x: Tensor, count: Tensor) -> tuple[Tensor, int]:
        total, weight = x.sum() * 0, 0
        for row in range(int(count + 1)):
            total = total * 0.5 + x[row % 2]
            weight += row
        return total, weight

    return program


@pattern(_sizes, LOOP, training=False, may_copy=True)
def counted_down_in_a_tensor() -> Program:
    def program(x: Tensor, count: Tensor) -> Tensor:
        while count:
            x = x.flip(0) - 0.25
            count = count - 1
        return x

    return program


PATTERNS = patterns_among(list(vars().values()))
