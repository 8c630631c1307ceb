"""Small programs that are explained and verified."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn

LOG = logging.getLogger("tests.trials.programs")


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        if y.sum() > 0:
            y = y * 2
        return y


class Net(nn.Module):
    """A check that raises, a branch in each of two layers, a print, a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.isnan().any():
            raise ValueError("not a number")
        self.calls += 1
        for layer in self.layers:
            x = layer(x)
        print("mean", x.mean())
        return x


class Whole(nn.Module):
    """Nothing to mend."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.linear(x))


class Uncopyable(Layer):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class Noisy(nn.Module):
    """Writes in every way."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            LOG.warning("sum %s", x.sum())
            warnings.warn("positive", stacklevel=1)
        print("x", x)
        return x + torch.rand(3)


class Growing(nn.Module):
    """Notes something of each call."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[float] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            x = x - 1
        self.seen.append(float(len(self.seen)))
        return x


def step(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return x * 2


class Stepping(Layer):
    """A branch, and a call that tests have traced as another one."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return step(self, super().forward(x))


COUNTED: list[int] = []


def keep(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    row, y = [1], x * 2
    layer.rows, layer.tensors = (row, row), (y, y + 0)  # type: ignore[assignment]
    COUNTED.append(1)
    return x


class Keeping(Layer):
    """A branch, and a call that keeps objects, which tests have traced as another one."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return keep(self, super().forward(x))


def fail(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    raise ValueError("never")


class Failing(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return fail(self, super().forward(x))


def reads_a_file(x: torch.Tensor) -> torch.Tensor:
    with open(__file__) as file:
        x = x + len(file.read(1))
    return x * 2


class Reading(nn.Module):
    """A submodule calls a function at which the graph breaks, and one that goes on a layer drop."""

    def __init__(self) -> None:
        super().__init__()
        self.reader, self.drop, self.linear = Reader(), LayerDrop(), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.drop(self.reader(x)))


class Reader(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return reads_a_file(x)


class LayerDrop(nn.Module):
    """Draws a number that is never below what it is compared with."""

    rate = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.rand([]) < self.rate:
            return x
        return x + 1


def wrong(x: torch.Tensor) -> torch.Tensor:
    """Stands for what `breaking` makes, and is none of it."""
    return x + 1


def breaking() -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function of its own that returns its argument, and at which graphs break."""

    def host(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x

    return host


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what bcmend has logged."""
    return [each.getMessage() for each in caplog.records if each.name == "bcmend"]
