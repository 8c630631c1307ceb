"""A small model that breaks the graph of stock torch: a branch, a check and a log line."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor, nn

LOG: Final = logging.getLogger("small")


class Small(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(width, width)
        self.other = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        h = self.linear(x)
        if not torch.isfinite(h).all():
            raise ValueError("not finite")
        if x.sum() > 0:
            h = (h + self.other(x)).tanh()
        else:
            h = self.other(h).sin()
        LOG.warning("mean %.3f", h.mean().item())
        return h


class Stacked(nn.Module):
    """Several of them, one behind the other."""

    def __init__(self, depth: int = 3, width: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Small(width) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def inputs(rows: int = 3, width: int = 4) -> list[Tensor]:
    """Return a batch for each side of the branch, and one that the check refuses."""
    torch.manual_seed(1)
    x = torch.rand(rows, width)
    return [x, -x, x * math.nan]


class Graphs:
    """A back end that counts graphs, and has another one compile them."""

    def __init__(self, inner: str = "eager") -> None:
        self.count = 0
        self.inner = torch._dynamo.lookup_backend(inner)

    def __call__(self, module: Any, given: Any, **options: Any) -> Any:
        self.count += 1
        return self.inner(module, given, **options)


class _Texts(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@contextmanager
def logged() -> Iterator[list[str]]:
    """Yield the texts that are logged in a block."""
    handler = _Texts()
    LOG.addHandler(handler)
    try:
        yield handler.texts
    finally:
        LOG.removeHandler(handler)


def shown(call: Callable[[], Any]) -> tuple[Any, list[str]]:
    """Return what a call returns, or its exception as a text, and what it has logged."""
    with logged() as texts:
        try:
            return call(), list(texts)
        except Exception as error:
            return repr(error), list(texts)


def steps(model: Any, call: Callable[[Tensor], Tensor], batches: list[Tensor]) -> list[Any]:
    """Return what steps of training show: results, gradients, weights, exceptions, log."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor) -> Any:
        optimizer.zero_grad()
        result = call(x)
        result.square().sum().backward()
        gradients = [each.grad for each in model.parameters()]
        optimizer.step()
        weights = [each.detach().clone() for each in model.parameters()]
        return result.detach(), gradients, weights

    return [shown(lambda: step(x)) for x in batches]  # noqa: B023  is called here


def assert_equal(found: Any, expected: Any) -> None:
    """Assert that what was shown is the same, numbers up to rounding."""
    if isinstance(expected, Tensor):
        torch.testing.assert_close(found, expected)
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_equal(one, other)
    else:
        assert found == expected
