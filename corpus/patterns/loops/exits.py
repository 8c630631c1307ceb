"""Loops over a known number that end early: `break`, `return`, `else`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from corpus.patterns.pattern import (
    CHOICE,
    COND,
    NO_MERGE,
    WHERE,
    pattern,
    patterns_among,
    rows,
    signs,
)
from tests.equivalence import Call, call

Program = Callable[..., Any]


@pattern(signs, WHERE)
def break_out_of_a_loop() -> Program:
    def program(x: Tensor) -> Tensor:
        for step in range(4):
            x = x + step
            if x.sum() > 3:
                break
        return x * 2

    return program


@pattern(signs, WHERE)
def return_out_of_a_loop() -> Program:
    def program(x: Tensor) -> Tensor:
        for step in range(4):
            x = x + step
            if x.sum() > 3:
                return x * 10
        return x * 2

    return program


def _images() -> list[Call]:
    image = torch.linspace(-1.0, 1.0, 8).reshape(1, 8)
    return [call(image * scale) for scale in (0.1, 3.0, 40.0)]


@pattern(_images, COND, zero_gradients=True)
def classifier_that_exits_out_of_its_loop() -> Any:
    class EarlyExit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
            self.heads = nn.ModuleList(nn.Linear(8, 3) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            for block, head in zip(self.blocks, self.heads, strict=True):
                x = block(x).relu()
                logits = head(x)
                probabilities = logits.softmax(-1)
                entropy = -(probabilities * probabilities.log()).sum()
                if entropy < 0.9:
                    return logits
            return logits

    return EarlyExit()


@pattern(_images, CHOICE, zero_gradients=True)
def exit_that_tells_its_number() -> Any:
    class EarlyExit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
            self.head = nn.Linear(8, 3)

        def forward(self, x: Tensor) -> tuple[Tensor, int]:
            for index, block in enumerate(self.blocks):
                x = block(x).relu()
                logits = self.head(x)
                if logits.softmax(-1).max() > 0.6:
                    return logits, index
            return logits, len(self.blocks)

    return EarlyExit()


@pattern(rows, COND, may_copy=True, zero_gradients=True)
def break_out_of_a_stack_of_layers() -> Any:
    class Refiner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                refined = x + layer(x).tanh()
                if (refined - x).abs().max() < 0.5:
                    break
                x = refined
            return x

    return Refiner()


@pattern(signs, CHOICE, may_copy=True)
def number_of_turns_returned() -> Program:
    def program(x: Tensor) -> tuple[Tensor, int]:
        turns = 0
        for _ in range(4):
            if x.sum() > 3:
                break
            x = x + 1
            turns += 1
        return x, turns

    return program


@pattern(signs, WHERE)
def else_of_a_for_loop() -> Program:
    def program(x: Tensor) -> Tensor:
        for offset in (0, 1, 2):
            if (x + offset).min() > 0:
                result = x.log1p()
                break
        else:
            result = x.abs()
        return result * 2

    return program


@pattern(rows, WHERE)
def break_out_of_the_inner_of_two_loops() -> Program:
    def program(x: Tensor) -> Tensor:
        total = x[0] * 0
        for row in range(2):
            for column in range(3):
                if x[row, column] < 0:
                    break
                total = total + x[row] * column
            total = total - row
        return total

    return program


@pattern(rows, WHERE)
def break_and_continue_in_one_loop() -> Program:
    def program(x: Tensor) -> Tensor:
        kept = x[:, 0] * 0
        for index, column in enumerate(x.unbind(1)):
            if column.min() < 0:
                continue
            kept = kept + column * index
            if kept.sum() > 4:
                break
        return kept

    return program


@pattern(signs, WHERE, may_copy=True)
def first_candidate_that_fits() -> Program:
    def program(x: Tensor) -> Tensor:
        for scale in (1.0, 0.5, 0.25, 0.125):
            candidate = x * scale
            if candidate.norm() < 2:
                return candidate
        return x

    return program


@pattern(signs, CHOICE)
def first_candidate_or_none() -> Program:
    def program(x: Tensor) -> Tensor | None:
        for scale in (1.0, 0.5):
            if (x * scale).norm() < 2.2:
                return x * scale
        return None

    return program


@pattern(signs, CHOICE)
def position_of_the_first_negative() -> Program:
    def program(x: Tensor) -> int:
        for position, value in enumerate(x):
            if value < 0:
                return position
        return -1

    return program


@pattern(signs, WHERE)
def break_out_of_a_reversed_range() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 1
        for exponent in reversed(range(1, 4)):
            if y.abs().max() > 10:
                break
            y = y * (1 + exponent / 2)
        return y

    return program


@pattern(signs, WHERE, NO_MERGE, from_3_12=(WHERE,))
def nested_conditions_before_a_break() -> Program:
    def program(x: Tensor) -> Tensor:
        best = x * 0
        for step in range(3):
            candidate = (x - step) * 0.5
            if candidate.sum() > best.sum():
                best = candidate
                if best.max() > 1:
                    break
            elif step > 0:
                best = best - 1
        return best + x

    return program


def _tokens() -> list[Call]:
    prompts = ([1, 4, 2], [5, 5, 0], [3, 1, 1])
    return [call(torch.tensor(each)) for each in prompts]


@pattern(_tokens, CHOICE, training=False)
def greedy_decoding_until_the_end_token() -> Any:
    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(6, 4)
            self.head = nn.Linear(4, 6)
            self.eos_token_id = 2

        def forward(self, tokens: Tensor) -> Tensor:
            for _ in range(3):
                logits = self.head(self.embedding(tokens).mean(0))
                token = logits.argmax()
                tokens = torch.cat([tokens, token[None]])
                if token == self.eos_token_id:
                    break
            return tokens

    return Decoder()


@pattern(_tokens, COND, training=False, may_copy=True)
def decoding_that_stops_when_all_are_finished() -> Program:
    def program(tokens: Tensor) -> Tensor:
        unfinished = torch.ones_like(tokens)
        for step in range(4):
            following = (tokens * 3 + step) % 7
            tokens = following * unfinished + 2 * (1 - unfinished)
            unfinished = unfinished * (tokens != 2).long()
            if unfinished.max() == 0:
                break
        return tokens

    return program


@pattern(rows, COND, training=False, may_copy=True)
def beam_search_that_stops_when_nothing_improves() -> Program:
    def program(scores: Tensor) -> Tensor:
        beams, _ = scores.topk(2, dim=-1)
        for penalty in (0.5, 1.0, 2.0):
            candidates = (beams[:, :, None] - penalty * scores[:, None, :].abs()).flatten(1)
            best, _ = candidates.topk(2, dim=-1)
            if (best <= beams - 1).all():
                break
            beams = best
        return beams

    return program


def _radicands() -> list[Call]:
    return [call(torch.tensor(each)) for each in ([1.0, 1.0], [4.0, 9.0], [100.0, 0.5])]


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


# no training: unrolled, the gradients are added in another order, equal but for rounding
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


@pattern(signs, CHOICE, WHERE)
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


PATTERNS = patterns_among(list(vars().values()))
