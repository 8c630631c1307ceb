"""Arms that keep something for the next call: buffers, counters, caches, logs, variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from corpus.patterns.pattern import (
    GUARD,
    NO_MERGE,
    OUTPUT,
    SPLIT,
    WHERE,
    pattern,
    patterns_among,
    signs,
)
from tests.equivalence import Call, call

Program = Callable[..., Any]


@pattern(signs, WHERE)
def observer_of_a_range() -> Any:
    class MinMaxObserver(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("low", torch.tensor(float("inf")))
            self.register_buffer("high", torch.tensor(float("-inf")))

        def forward(self, x: Tensor) -> Tensor:
            low, high = torch.aminmax(x.detach())
            if low < self.low:
                self.low = low
            if high > self.high:
                self.high = high
            return (x - self.low) / (self.high - self.low + 1e-3)

    return MinMaxObserver()


@pattern(signs, WHERE)
def average_that_starts_with_the_first_value() -> Any:
    class Average(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))
            self.register_buffer("seen", torch.tensor(0))

        def forward(self, x: Tensor) -> Tensor:
            if self.seen == 0:
                self.mean = x.detach().clone()
            else:
                self.mean = 0.9 * self.mean + 0.1 * x.detach()
            self.seen = self.seen + 1
            return x - self.mean

    return Average()


@pattern(signs, WHERE, training=False)
def codebook_initialised_once() -> Any:
    class Codebook(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("initted", torch.zeros(1))
            self.register_buffer("embed", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            if not self.initted:
                self.embed.copy_(x.abs())
                self.initted.fill_(1.0)
            return x + self.embed

    return Codebook()


@pattern(signs, WHERE)
def running_loss_scale() -> Any:
    class Scaler(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.good_steps = torch.tensor(8.0), torch.tensor(0)

        def forward(self, x: Tensor) -> Tensor:
            scaled = x * self.scale
            if scaled.abs().max() > 20:
                self.scale = self.scale * 0.5
                self.good_steps = torch.zeros_like(self.good_steps)
            else:
                self.good_steps = self.good_steps + 1
                if self.good_steps >= 1:
                    self.scale = self.scale * 2
            return scaled

    return Scaler()


# An int on a module is a constant of the graph, patched or not: another value, another graph.
@pattern(signs, WHERE, graphs=3, recompiles=2)
def skipped_steps_counted() -> Any:
    class Trainer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.skipped, self.steps = 0, 0

        def forward(self, x: Tensor) -> Tensor:
            if x.min() < -2:
                self.skipped += 1
                return x * 0
            self.steps += 1
            return x * 2

    return Trainer()


@pattern(signs, NO_MERGE)
def cache_dropped_in_one_arm() -> Any:
    class Cached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cache: Tensor | None = None

        def forward(self, x: Tensor) -> Tensor:
            y = x * 2
            self.cache = y.detach()
            if y.sum() < 0:
                self.cache = None
            return y

    return Cached()


@pattern(signs, NO_MERGE)
def mode_of_a_module_as_a_string() -> Any:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mode = "unset"

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                self.mode = "plus"
            else:
                self.mode = "minus"
            return x * 2

    return Net()


def _logs() -> list[Call]:
    return [call(torch.tensor(each), []) for each in ([1.0, 2.0], [-1.0, -2.0])]


@pattern(_logs, WHERE)
def history_of_the_caller_appended_to() -> Program:
    def program(x: Tensor, history: list[Tensor]) -> Tensor:
        if x.sum() > 0:
            history.append(x.detach() * 1)
        return x * 2

    return program


@pattern(_logs, WHERE)
def history_of_the_caller_appended_to_in_both_arms() -> Program:
    def program(x: Tensor, history: list[Tensor]) -> Tensor:
        if x.sum() > 0:
            history.append(x.detach() * 2)
        else:
            history.append(x.detach() - 1)
        return history[-1] + x

    return program


def _tables() -> list[Call]:
    tables = [{"last": torch.zeros(2), "best": torch.ones(2)} for _ in range(2)]
    vectors = ([1.0, 2.0], [-1.0, -2.0])
    return [call(torch.tensor(x), table) for x, table in zip(vectors, tables, strict=True)]


@pattern(_tables, WHERE, training=False)
def statistics_kept_in_a_dictionary() -> Program:
    def program(x: Tensor, stats: dict[str, Tensor]) -> Tensor:
        stats["last"] = x * 1
        if x.sum() > stats["best"].sum():
            stats["best"] = x * 1
        return x - stats["best"]

    return program


@pattern(_tables, SPLIT, training=False)
def key_added_in_one_arm_and_looked_for() -> Program:
    def program(x: Tensor, stats: dict[str, Tensor]) -> Tensor:
        if x.min() < 0:
            stats["negative"] = x.min()
        if "negative" in stats:
            x = x - stats["negative"]
        return x * 2

    return program


@pattern(_tables, SPLIT, training=False)
def key_removed_in_one_arm() -> Program:
    def program(x: Tensor, stats: dict[str, Tensor]) -> Tensor:
        if x.sum() > 0:
            stats.pop("best")
        return x * 2 + len(stats)

    return program


@pattern(signs, WHERE)
def state_of_a_submodule_stored_to() -> Any:
    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("shift", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.shift

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x: Tensor) -> Tensor:
            if x.mean() > 0:
                self.inner.shift = self.inner.shift + x.detach().mean()
            return self.inner(x) * 2

    return Outer()


@pattern(signs, WHERE)
def attribute_stored_under_a_computed_name() -> Any:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stat_low, self.stat_high = torch.zeros(()), torch.zeros(())

        def forward(self, x: Tensor) -> Tensor:
            for name, value in (("low", x.min()), ("high", x.max())):
                if value > getattr(self, f"stat_{name}"):
                    setattr(self, f"stat_{name}", value.detach())
            return x + self.stat_high - self.stat_low

    return Net()


@pattern(signs, WHERE)
def item_of_a_clone_assigned() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x.clone()
        if x[0] > 0:
            z = y * 1
            z[0] = -x[1]
            z[1:] += 1
            y = z
        return y * 2

    return program


@pattern(signs, WHERE)
def total_increased_by_augmented_assignment() -> Program:
    def program(x: Tensor) -> Tensor:
        total = torch.zeros(())
        for power in (1, 2, 3):
            term = (x**power).sum()
            if term > 0:
                total = total + term
            else:
                total = total - term / 2
        return x * total

    return program


@pattern(signs, WHERE, training=False)
def parameter_clipped_when_too_large() -> Any:
    class Clipped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([1.0, -2.0, 4.0]))

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                if self.weight.norm() > 3:
                    self.weight.mul_(0.5)
            return x * self.weight

    return Clipped()


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


_LARGEST = torch.zeros(())


@pattern(signs, WHERE)
def global_variable_assigned_in_one_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        global _LARGEST
        _LARGEST = torch.zeros(())
        if x.max() > 0.75:
            _LARGEST = x.detach().max()
        return x - _LARGEST

    return program


# Dynamo has a guard on whether the attribute exists before the call.
@pattern(signs, SPLIT, graphs=2, recompiles=1)
def attribute_deleted_in_one_arm() -> Any:
    class Net(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            self.hint = x.detach() + 1
            if x.sum() < 0:
                del self.hint
            return x * 2 if hasattr(self, "hint") else x - 1

    return Net()


PATTERNS = patterns_among(list(vars().values()))
