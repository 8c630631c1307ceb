"""Functions that return early: often, deep inside, out of loops and blocks, with unlike values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpus.patterns.pattern import (
    CHOICE,
    COND,
    GUARD,
    SPLIT,
    WHERE,
    pattern,
    patterns_among,
    rows,
    signs,
)
from tests.equivalence import Call, call

Program = Callable[..., Any]

UNLIKE = "values without a common form are refused where the caller or a container has them"
OUT_OF_LOOP = "a return out of a loop on a tensor is not lowered"


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


@pattern(signs, CHOICE)
def nothing_found_is_none() -> Program:
    def program(scores: Tensor) -> Tensor | None:
        keep = scores > 0
        if not keep.any():
            return None
        return scores * keep

    return program


@pattern(signs, CHOICE)
def none_within_the_returned_tuple() -> Program:
    def program(x: Tensor) -> tuple[Tensor, Tensor | None]:
        y = x * 2
        if y.sum() > 0:
            return y, None
        return y, y.softmax(0)

    return program


@pattern(signs, CHOICE)
def tuples_of_other_lengths() -> Program:
    def program(logits: Tensor) -> tuple[Tensor, ...]:
        loss = logits.square().mean()
        if loss > 5:
            return loss, logits
        return (loss,)

    return program


@pattern(signs, CHOICE)
def tuple_or_list() -> Program:
    def program(x: Tensor) -> tuple[Tensor, ...] | list[Tensor]:
        if x.sum() > 0:
            return x * 2, x + 1
        return [x - 1, x * 3]

    return program


@pattern(signs, CHOICE)
def verdict_as_a_string() -> Program:
    def program(x: Tensor) -> str:
        if (x > 0).all():
            return "positive"
        if (x < 0).all():
            return "negative"
        return "mixed"

    return program


@pattern(signs, CHOICE, SPLIT)
def verdict_of_a_helper_that_returns_a_bool() -> Program:
    def diverged(x: Tensor) -> bool:
        if x.abs().max() > 3.5:
            return True
        return False

    def program(x: Tensor) -> Tensor:
        if diverged(x):
            return x * 0.1
        return x * 2

    return program


@pattern(signs, CHOICE, SPLIT)
def helper_that_returns_a_tensor_or_none() -> Program:
    def penalty(x: Tensor) -> Tensor | None:
        if x.min() > 0:
            return None
        return x.clamp(max=0).square().sum()

    def program(x: Tensor) -> Tensor:
        loss = x.sum()
        extra = penalty(x)
        if extra is not None:
            loss = loss + extra
        return loss

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


@pattern(signs, GUARD, WHERE)
def early_returns_and_a_check_between() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 5:
            return x * 2
        if x.min() < -3.5:
            raise ValueError("too small")
        if x.max() > 0:
            return x + 1
        return x - 1

    return program


@pattern(signs, WHERE)
def return_from_inside_autocast() -> Program:
    def program(x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            if x.sum() > 0:
                return x.exp()
            y = x.float() - 1
        return y

    return program


@pattern(signs, WHERE)
def both_returns_inside_no_grad() -> Program:
    def program(x: Tensor) -> Tensor:
        with torch.no_grad():
            norm = x.norm()
            if norm > 3.9:
                return x / norm
            return x * 1

    return program


@pattern(signs, WHERE)
def return_from_inside_try() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            if x.sum() > 0:
                return x * 2
            y = x - 1
        except RuntimeError:
            y = x * 0
        return y

    return program


@pattern(signs, WHERE)
def return_past_a_finally() -> Any:
    class Guarded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.busy = False

        def forward(self, x: Tensor) -> Tensor:
            self.busy = True
            try:
                if x.sum() > 0:
                    return x * 2
                return x - 1
            finally:
                self.busy = False

    return Guarded()


PATTERNS = patterns_among(list(vars().values()))
