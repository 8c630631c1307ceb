"""Loops that go on until a tensor says so: solvers, fixed points, halting units."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from corpus.patterns.pattern import COND, LOOP, SPLIT, WHERE, pattern, patterns_among, rows, signs
from tests.equivalence import Call, call

Program = Callable[..., Any]


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


@pattern(signs, WHERE, training=False, may_copy=True)
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


# no training: a result that only one side connects to an argument counts as needing gradients
@pattern(_radicands, WHERE, training=False)
def newton_with_a_budget() -> Program:
    def program(a: Tensor) -> Tensor:
        root = torch.ones_like(a)
        for _ in range(6):
            step = (root * root - a) / (2 * root)
            if step.abs().max() < 1e-3:
                break
            root = root - step
        return root

    return program


def _matrices() -> list[Call]:
    one = torch.tensor([[2.0, 1.0], [1.0, 3.0]])
    return [call(one.clone()), call(torch.eye(2) * 4), call(one * 0.1 + torch.eye(2))]


# no training: the gradients of unrolled turns are added in another order, equal but for rounding
@pattern(_matrices, COND, training=False)
def power_iteration_with_a_budget() -> Program:
    def program(matrix: Tensor) -> tuple[Tensor, Tensor]:
        vector = torch.ones(2) / 2**0.5
        for _ in range(4):
            image = matrix @ vector
            following = image / image.norm()
            if torch.dist(following, vector) < 1e-2:
                vector = following
                break
            vector = following
        return vector @ matrix @ vector, vector

    return program


@pattern(_matrices, WHERE)
def sinkhorn_with_a_budget() -> Program:
    def program(cost: Tensor) -> Tensor:
        log_plan = -cost / 0.5
        for _ in range(4):
            log_plan = log_plan - log_plan.logsumexp(1, keepdim=True)
            log_plan = log_plan - log_plan.logsumexp(0, keepdim=True)
            error = (log_plan.exp().sum(1) - 1).abs().max()
            if error < 1e-3:
                break
        return log_plan.exp()

    return program


# no training: a gradient of zero may have the other sign
@pattern(_matrices, WHERE, training=False, may_copy=True)
def fixed_point_tested_by_allclose() -> Program:
    def program(x: Tensor) -> Tensor:
        for _ in range(3):
            following = x.cos()
            if torch.allclose(following, x, atol=0.2):
                break
            x = following
        return x

    return program


@pattern(rows, COND, zero_gradients=True)
def equilibrium_of_a_layer() -> Any:
    class Equilibrium(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.tolerance = 0.3

        def forward(self, x: Tensor) -> Tensor:
            state = torch.zeros_like(x)
            for _ in range(4):
                following = torch.tanh(self.layer(state) + x)
                residual = (following - state).norm() / (following.norm() + 1e-6)
                state = following
                if residual < self.tolerance:
                    break
            return state

    return Equilibrium()


@pattern(rows, COND, zero_gradients=True)
def adaptive_computation_time() -> Any:
    class Halting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.halt = nn.Linear(4, 4), nn.Linear(4, 1)
            self.threshold = 0.9

        def forward(self, state: Tensor) -> tuple[Tensor, Tensor]:
            halted = torch.zeros(state.shape[0], 1)
            mixed = torch.zeros_like(state)
            for _ in range(4):
                if not (halted < self.threshold).any():
                    break
                state = self.cell(state).tanh()
                p = self.halt(state).sigmoid() * (halted < self.threshold)
                p = torch.where(halted + p > self.threshold, 1 - halted, p)
                halted = halted + p
                mixed = mixed + p * state
            return mixed, halted

    return Halting()


@pattern(rows, COND, training=False)
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


@pattern(signs, WHERE, may_copy=True)
def line_search_that_backtracks() -> Program:
    def loss(x: Tensor) -> Tensor:
        return (x * x).sum() + x.abs().sum()

    def program(x: Tensor) -> Tensor:
        direction, start = 2 * x + x.sign(), loss(x)
        best = x
        for power in range(4):
            candidate = x - direction * 2.0**-power
            if loss(candidate) < start - 0.1 * 2.0**-power * direction.square().sum():
                best = candidate
                break
        return best

    return program


@pattern(signs, SPLIT)
def patience_counted_until_it_is_used_up() -> Program:
    def program(x: Tensor) -> Tensor:
        best, patience = x.sum(), 0
        for step in range(4):
            value = (x * (step - 1)).sum()
            if value > best:
                best, patience = value, 0
            else:
                patience += 1
            if patience == 2:
                break
        return best

    return program


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
