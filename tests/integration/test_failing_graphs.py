"""Sequences of calls of which some fail inside their graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bcmend
from tests.equivalence import assert_equivalent, call

GOOD, BAD = torch.tensor([0, 1, 2]), torch.tensor([0, 9, 2])


def _square() -> Tensor:
    return torch.arange(9.0).view(3, 3) / 4


class Transformed(nn.Module):
    """A graph that enters a transform of ``torch.func`` and may fail in it."""

    total: Tensor

    def __init__(self, transform: Callable[[Tensor, Tensor], Tensor], changes: bool) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(1))
        self.transform, self.changes = transform, changes

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        print("before", x.sum().item())
        y = self.transform(x, places)
        if self.changes:
            self.total.add_(1)
        return y


def _gradient(x: Tensor, places: Tensor) -> Tensor:
    found: Tensor = torch.func.grad(lambda row: row.gather(1, places[:, None]).sum())(x)
    return found


def _rows(x: Tensor, places: Tensor) -> Tensor:
    found: Tensor = torch.func.vmap(lambda row, place: row.gather(0, place[None]))(x, places)
    return found


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("changes", [True, False])
@pytest.mark.parametrize("transform", [_gradient, _rows])
def test_a_transform_is_left_where_a_graph_fails_in_it(
    transform: Callable[[Tensor, Tensor], Tensor], changes: bool, backend: str
) -> None:
    assert_equivalent(
        lambda: Transformed(transform, changes),
        lambda: [call(_square(), each) for each in (GOOD, BAD, GOOD, BAD)],
        backend=backend,
        fullgraph=False,
        graphs=None,
        recompiles=None,
    )


class Risky(nn.Module):
    """What may fail in one mode only, with a buffer that every graph changes."""

    total: Tensor

    def __init__(self, size: int = 1) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(size))
        self.calls = 0

    def forward(self, x: Tensor, places: Tensor, risky: bool) -> Tensor:
        print("before", x.sum().item())
        self.calls += 1
        self.total.add_(1)
        if risky:
            return x.gather(1, places[:, None])
        return x * 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_graph_that_cannot_fail_says_nothing_of_others_of_its_code(backend: str) -> None:
    def calls() -> list[Any]:
        modes = [(GOOD, False), (GOOD, True), (BAD, True), (GOOD, True), (BAD, True)]
        return [call(_square(), places, risky) for places, risky in modes]

    assert_equivalent(Risky, calls, backend=backend, fullgraph=False, graphs=None, recompiles=None)


def test_instances_whose_buffers_can_and_cannot_be_kept() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.large, self.small = Risky(2**18), Risky()

        def forward(self, x: Tensor, places: Tensor, is_large: bool) -> Tensor:
            result: Tensor = (self.large if is_large else self.small)(x, places, True)
            return result

    def calls() -> list[Any]:
        return [
            call(_square(), GOOD, True),
            *(call(_square(), each, False) for each in (GOOD, BAD, GOOD, BAD)),
        ]

    assert_equivalent(Both, calls, fullgraph=False, graphs=None, recompiles=None)


def _without_gradients(x: Tensor, places: Tensor) -> Tensor:
    with torch.no_grad():
        return x.gather(1, places[:, None])


def _in_half_precision(x: Tensor, places: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return (x @ x).gather(1, places[:, None])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("block", [_without_gradients, _in_half_precision, _gradient])
def test_a_block_is_left_where_a_graph_fails_in_it(
    block: Callable[[Tensor, Tensor], Tensor], backend: str
) -> None:
    def settings() -> list[Any]:
        hooks = torch._C._autograd._saved_tensors_hooks_is_enabled()
        return [torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), hooks]

    def caught(x: Tensor, places: Tensor) -> Tensor:
        print("before", x.sum().item())
        try:
            y = block(x, places)
        except (IndexError, RuntimeError):
            y = x
        return (x * y.float()).sum()

    compiled = torch.compile(bcmend.patch(caught), backend=backend)
    for places in (GOOD, BAD, GOOD, BAD):
        x, y = (_square().requires_grad_() for _ in range(2))
        before = settings()
        compiled(x, places).backward()
        caught(y, places).backward()
        assert settings() == before == [True, False, True]
        assert x.grad is not None and y.grad is not None
        assert torch.equal(x.grad, y.grad)


def test_a_block_is_left_where_the_exception_goes_on() -> None:
    def fails(x: Tensor, places: Tensor) -> Tensor:
        print("before", x.sum().item())
        return _without_gradients(x, places)

    compiled = torch.compile(bcmend.patch(fails), backend="eager")
    compiled(_square(), GOOD)
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        compiled(_square(), BAD)
    assert torch.is_grad_enabled()
