"""Modules that a call makes, with buffers: losses whose weights of classes are computed anew."""

from __future__ import annotations

import inspect
from typing import Any, Final

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.equivalence import Call, assert_equivalent, call


class Weighted(nn.Module):
    def __init__(self, count: int, persistent: bool = True) -> None:
        super().__init__()
        weights = torch.ones(count)
        weights[-1] = 0.1
        self.weights = nn.Buffer(weights, persistent=persistent)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(x, labels, self.weights)


class Model(nn.Module):
    def __init__(self, persistent: bool = True) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.persistent = persistent

    def forward(self, x: Tensor, labels: Tensor) -> Any:
        x = self.layer(x)
        if x.sum() > 0:
            x = x * 2
        loss = Weighted(3, self.persistent)
        names = sorted(loss._non_persistent_buffers_set), sorted(loss._buffers)
        return loss(x, labels), names, loss.weights * 2


def calls() -> list[Call]:
    torch.manual_seed(4)
    return [call(torch.randn(5, 4), torch.tensor([0, 1, 2, 2, 1])) for _ in range(3)]


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("fullgraph", [False, True])
def test_buffers_of_modules_made_in_the_call(
    fullgraph: bool, backend: str, persistent: bool
) -> None:
    assert_equivalent(
        lambda: Model(persistent), calls, training=True, backend=backend, fullgraph=fullgraph
    )


class Own(nn.Module):
    """A module that does not take what torch hands on."""

    def register_buffer(self, name: str, tensor: Tensor | None) -> None:  # type: ignore[override]
        super().register_buffer(name, tensor)

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Buffer(torch.arange(3.0))


def of_its_own_register(x: Tensor) -> Any:
    y = x * 2 if x.sum() > 0 else x + 1
    made = Own()
    return y * made.weights, "weights" in made._non_persistent_buffers_set


def asked_of_a_buffer(x: Tensor) -> Any:
    y = x * 2 if x.sum() > 0 else x + 1
    buffer = nn.Buffer(y + 1, persistent=False)
    return buffer * 2, buffer.persistent, isinstance(buffer, nn.Buffer)


def signature_of_a_made_object(x: Tensor) -> Any:
    y = x * 2 if x.sum() > 0 else x + 1
    made = Own()
    asked = inspect.signature(made.register_buffer)
    return y, list(asked.parameters), "persistent" in asked.parameters


def signature_of_a_function(x: Tensor) -> Any:
    y = x * 2 if x.sum() > 0 else x + 1
    return y, list(inspect.signature(signature_of_a_made_object).parameters)


PROGRAMS: Final = (
    of_its_own_register, asked_of_a_buffer, signature_of_a_made_object, signature_of_a_function
)  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_asked(program: Any) -> None:
    x = torch.tensor([1.0, 2.0, -1.0])
    assert_equivalent(lambda: program, lambda: [call(x), call(-x)], fullgraph=True)
