"""Layers with two expensive arms inside ``torch.utils.checkpoint``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import bcmend
from tests.equivalence import Call, assert_equivalent, call


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    bcmend.unpatch()
    torch._dynamo.reset()


def _stack() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.Linear(64, 4))


class Layer(nn.Module):
    """Takes one of two stacks."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = _stack(), _stack()

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return self.one(x)  # type: ignore[no-any-return]
        return self.other(x).tanh()  # type: ignore[no-any-return]


class Checkpointed(nn.Module):
    """Two such layers, each of which is computed again in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(), Layer()])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x - checkpoint(layer, x, use_reentrant=False)
        return x.sin()


def _inputs() -> list[Call]:
    torch.manual_seed(3)
    x = torch.rand(5, 4)
    return [call(x * side) for side in (1.0, -1.0, 2.0, -2.0)]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("training", [False, True])
def test_a_layer_with_two_expensive_arms(backend: str, training: bool) -> None:
    found = assert_equivalent(
        Checkpointed, _inputs, backend=backend, training=training, zero_gradients=True
    )
    assert found.report is not None
    assert ["cond" in site.lowering for site in found.report.sites] == [True]


def test_a_choice_of_a_program_that_is_not_patched_fails_as_before() -> None:
    def program(x: Tensor) -> Any:
        def body(y: Tensor) -> Tensor:
            return torch.cond(y.sum() > 0, torch.sin, torch.cos, (y,))  # type: ignore[no-any-return]

        return checkpoint(body, x, use_reentrant=False)

    def failure() -> str:
        torch._dynamo.reset()
        with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as found:
            torch.compile(program, backend="aot_eager")(torch.ones(3, requires_grad=True))
        return str(found.value).partition(" object at ")[0]

    stock = failure()
    assert "There was no rule registered" in stock
    model = bcmend.patch(Checkpointed())
    torch.compile(model, backend="eager")(_inputs()[0].arguments[0])
    assert failure() == stock
