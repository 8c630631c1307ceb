"""Tensors with a history that one call stores and a later one finds.

The history is gone once its call went backward, and eager execution does not go there again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

import bcmend


class Program(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.outer = nn.Linear(4, 4), nn.Linear(4, 4)
        self.kept: Any = torch.zeros(3, 4)

    def found(self) -> Tensor:
        result: Tensor = self.kept
        return result


class Stored(Program):
    def forward(self, x: Tensor, truth: Tensor) -> Tensor:
        x = self.outer(x)
        if truth > 0:
            self.kept = self.inner(x)
        return x * 2


class InDictionary(Program):
    def __init__(self) -> None:
        super().__init__()
        self.kept = {"one": torch.zeros(3, 4), "other": 1}

    def forward(self, x: Tensor, truth: Tensor) -> Tensor:
        x = self.outer(x)
        if truth > 0:
            self.kept["one"] = self.inner(x)
        return x * 2

    def found(self) -> Tensor:
        result: Tensor = self.kept["one"]
        return result


class InList(Program):
    def __init__(self) -> None:
        super().__init__()
        self.kept = [torch.zeros(3, 4), torch.ones(3, 4)]

    def forward(self, x: Tensor, truth: Tensor) -> Tensor:
        x = self.outer(x)
        if truth > 0:
            self.kept[0] = self.inner(x)
        return x * 2

    def found(self) -> Tensor:
        result: Tensor = self.kept[0]
        return result


class InTuple(InList):
    def forward(self, x: Tensor, truth: Tensor) -> Tensor:
        x = self.outer(x)
        if truth > 0:
            self.kept = (self.inner(x), x)
        return x * 2


class Hooked(Program):
    """A layer whose hook stores its weight each time, as the older form of weight norm does."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.utils.weight_norm(self.inner)

    def forward(self, x: Tensor, truth: Tensor) -> Tensor:
        x = self.outer(x)
        if truth > 0:
            x = self.inner(x)
        return x * 2


class ReadDetached(Program):
    def forward(self, x: Tensor, truth: Tensor) -> Tensor:
        x = self.outer(x)
        if truth > 0:
            self.kept = self.inner(x)
        return x * 2 + self.kept.detach()


class DetachedInAnArm(Program):
    def forward(self, x: Tensor, truth: Tensor) -> Tensor:
        x = self.outer(x)
        if truth > 0:
            self.kept = self.inner(x)
        else:
            self.kept = self.kept.detach()
        return x * 2 + self.kept


class Buffer(Program):
    def __init__(self) -> None:
        super().__init__()
        del self.kept
        self.register_buffer("kept", torch.zeros(3, 4))

    def forward(self, x: Tensor, truth: Tensor) -> Tensor:
        x = self.outer(x)
        if truth > 0:
            self.kept = self.inner(x)
        return x * 2


class ReadInAnArm(Program):
    def forward(self, x: Tensor, truth: Tensor) -> Tensor:
        x = self.outer(x)
        if truth > 0:
            self.kept = self.inner(x)
            if x.sum() > 0:
                self.kept = self.kept * 2
                x = x + self.kept
        return x * 2


CAPTURED = (Stored, InDictionary, InList, InTuple, Hooked, ReadDetached, DetachedInAnArm)
BROKEN = (Buffer, ReadInAnArm)


def _trained(
    program: Program, called: Callable[..., Tensor], truths: list[float]
) -> list[list[Tensor]]:
    """Return what calls with a backward each give; zeros for a gradient that is not there."""
    outcomes = []
    for truth in truths:
        program.zero_grad()
        result = called(torch.ones(3, 4), torch.tensor(truth))
        result.sum().backward()
        gradients = [
            torch.zeros_like(each) if each.grad is None else each.grad
            for each in program.parameters()
        ]
        outcomes.append([result.detach(), program.found().detach().clone(), *gradients])
    return outcomes


def _mended(program: Program, **settings: Any) -> Callable[..., Tensor]:
    torch._dynamo.reset()
    bcmend.patch(program)
    called: Callable[..., Tensor] = torch.compile(program, **settings)
    return called


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("make", CAPTURED, ids=lambda each: each.__name__)
def test_the_history_of_an_earlier_call_is_left_alone(make: type[Program], backend: str) -> None:
    truths = [-1.0, 1.0, 1.0, -1.0, -1.0, 1.0]
    expected = _trained(program := make(), program, truths)
    program = make()
    found = _trained(program, _mended(program, backend=backend, fullgraph=True), truths)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("make", BROKEN, ids=lambda each: each.__name__)
def test_a_branch_breaks_the_graph_that_would_go_there(make: type[Program]) -> None:
    """Its sides have no common form without that history, and what it stores is read later."""
    truths = [-1.0, 1.0, 1.0, -1.0, -1.0, 1.0]
    expected = _trained(program := make(), program, truths)
    program = make()
    found = _trained(program, _mended(program, backend="aot_eager"), truths)
    torch.testing.assert_close(found, expected)


def test_a_state_without_history_is_still_chosen_in_the_graph() -> None:
    class Detached(Program):
        def forward(self, x: Tensor, truth: Tensor) -> Tensor:
            if truth > 0:
                self.kept = torch.zeros(3, 4)
            state = torch.tanh(self.inner(self.kept) + self.outer(x))
            self.kept = state.detach()
            return state * 2

    truths = [1.0, -1.0, -1.0, 1.0]
    expected = _trained(program := Detached(), program, truths)
    program = Detached()
    found = _trained(program, _mended(program, backend="aot_eager", fullgraph=True), truths)
    torch.testing.assert_close(found, expected)


def test_an_arm_that_keeps_a_tensor_is_computed_again() -> None:
    class Keeper:
        kept = torch.zeros(3)

    def program(x: Tensor, keeper: Keeper) -> Tensor:
        y = x * 2
        if x[0] > 0:
            keeper.kept = y.exp()
        return y.sin().sum()

    def gradient(function: Any) -> tuple[Tensor, Tensor]:
        x, keeper = torch.ones(3, requires_grad=True), Keeper()
        with set_checkpoint_early_stop(False):
            result = checkpoint(function, x, keeper, use_reentrant=False)
            result.backward()
        assert x.grad is not None
        return x.grad, keeper.kept

    mended = torch.compile(bcmend.patch(program), backend="eager", fullgraph=True)
    for one, other in zip(gradient(mended), gradient(program), strict=True):
        assert torch.equal(one, other)
