"""Arms that set attributes, buffers, global or nonlocal variables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from corpus.patterns.pattern import NO_MERGE, SPLIT, WHERE, pattern, patterns_among, signs

Program = Callable[..., Any]


@pattern(signs, WHERE)
def attribute_in_both_arms() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = torch.zeros(3)

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                self.last = x.detach() * 2
            else:
                self.last = x.detach() - 1
            return x + self.last

    return Net()


@pattern(signs, WHERE)
def attribute_in_one_arm() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = torch.zeros(3)

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                self.last = x.detach() * 2 + self.last
            return x + self.last

    return Net()


@pattern(signs, WHERE)
def attribute_of_a_plain_object() -> Program:
    class State:
        def __init__(self) -> None:
            self.value = torch.zeros(3)

    state = State()

    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            state.value = x.detach() * 2
        else:
            state.value = state.value + 1
        return x * state.value

    return program


# An int on a module is a constant of the graph, patched or not: another value, another graph.
@pattern(signs, WHERE, graphs=2, recompiles=1)
def number_counted_in_one_arm() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.count = 0

        def forward(self, x: Tensor) -> Tensor:
            y = x * 1
            if x.sum() > 0:
                self.count += 1
                y = x * 2
            return y + 1

    return Net()


@pattern(signs, WHERE)
def buffer_assigned() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                self.mean = self.mean * 0.9 + x.detach() * 0.1
            return x - self.mean

    return Net()


@pattern(signs, WHERE, graphs=2, recompiles=1)
def buffer_registered_in_both_arms() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", torch.ones(3))
            self.register_buffer("original", torch.full((3,), 2.0))

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                self.register_buffer("scale", x.detach() * 2, persistent=False)
            else:
                self.register_buffer("scale", self.original * 1, persistent=False)
            return x * self.scale

    return Net()


@pattern(
    signs,
    WHERE,
    graphs=3,
    recompiles=2,
    unsettled="the buffer that one side creates counts as another place of the merged one",
)
def attribute_initialised_in_one_arm() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("short", torch.ones(3), persistent=False)

        def _long(self) -> Tensor:
            return torch.arange(3.0)

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                if not hasattr(self, "long"):
                    self.register_buffer("long", self._long(), persistent=False)
                self.register_buffer("scale", self.long, persistent=False)
            else:
                self.register_buffer("scale", self.short, persistent=False)
            return x * self.scale

    return Net()


@pattern(signs, WHERE)
def variable_of_an_enclosing_function() -> Program:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        total = x.detach() * 0

        def change() -> Tensor:
            nonlocal total
            if x.sum() > 0:
                total = total + 1
                y = x * 2
            else:
                total = total - 1
                y = x - 1
            return y

        y = change() + change()
        return y, total

    return program


@pattern(signs, WHERE)
def variable_kept_between_calls() -> Program:
    total = torch.zeros(3)

    def program(x: Tensor) -> Tensor:
        nonlocal total
        if x.sum() > 0:
            total = total + x.detach()
        return x + total

    return program


@pattern(signs, NO_MERGE)
def state_stored_over_later() -> Program:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stage: str | None = "made"

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                self.stage = "positive"
            else:
                self.stage = None
            y = x * 2
            self.stage = "done"
            return y

    return Net()


@dataclass
class Summary:
    """What a model returns."""

    logits: Tensor
    note: str | None = None


@pattern(signs, WHERE)
def result_object_with_an_optional_field() -> Program:
    def program(x: Tensor) -> Summary:
        summary = Summary(x * 2)
        if x.min() < -3.5:
            summary.note = "clipped"
            summary.logits = x.clamp(min=-3)
        return summary

    return program


@pattern(signs, WHERE)
def nonlocal_updated_in_an_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        total = x.sum()

        def add(y: Tensor) -> None:
            nonlocal total
            if y.max() > 0.75:
                total = total + y.max()

        for part in (x, -x, x * 0.1):
            add(part)
        return x * total

    return program


@pattern(signs, WHERE)
def nonlocal_number_counted_in_an_arm() -> Program:
    def program(x: Tensor) -> tuple[Tensor, int]:
        hits = 0

        def visit(y: Tensor) -> Tensor:
            nonlocal hits
            if y.sum() > 0:
                hits += 1
                return y * 2
            return y

        return visit(x) + visit(-x), hits

    return program


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


# An int on a module is a constant of the graph until a call has stored another one.
@pattern(signs, WHERE, graphs=2, recompiles=1)
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


@pattern(signs, NO_MERGE, from_3_12=(WHERE,))
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
