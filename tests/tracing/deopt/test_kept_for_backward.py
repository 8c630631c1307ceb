"""Gradients of graphs that change arguments in place, where stock breaks between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import bcmend


@pytest.fixture(autouse=True)
def _begun_anew() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    bcmend.unpatch()


class Counting(nn.Module):
    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(2))
        self.calls = 0


class Printing(Counting):
    def forward(self, x: Tensor) -> Tensor:
        self.total += 1
        print(end="")
        return (x * self.total.sum().add(1)).sin()


class Branching(Counting):
    def forward(self, x: Tensor) -> Tensor:
        self.total += 1
        if x.sum() > 0:
            self.calls += 10
        return (x * self.total.sum().add(1)).sin()


class ChangingLate(Counting):
    def forward(self, x: Tensor) -> Tensor:
        y = (x * self.total.sum().add(1)).sin()
        if x.sum() > 0:
            y = y * 2
        self.total.mul_(3).add_(1)
        return y


class Checking(Counting):
    def forward(self, x: Tensor, *, rate: float = 0.5) -> Tensor:
        scale = self.total[:1].exp()
        if x.isnan().any():
            raise ValueError("not a number")
        self.total.mul_(rate).add_(1)
        return (x * scale + self.total.view(2, 1)[0]).sin()


class Reading(Counting):
    def forward(self, x: Tensor) -> Tensor:
        self.total += 0.25
        return (x * self.total[0].item()).sin()


class ReadingAnInteger(Counting):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        self.steps += 1
        return (x * self.steps.item()).sin()


class ReadingInAnOperation(Counting):
    """Number and tensor are one, and the bound is in the backward."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("bound", torch.tensor(0.75))

    def forward(self, x: Tensor) -> Tensor:
        self.bound.add_(0.25)
        return (x.clamp(-0.25, self.bound) * self.bound.item()).sin()


class ReadingBefore(Counting):
    def forward(self, x: Tensor) -> Tensor:
        n = self.total[0].item()
        self.total += 0.25
        return (x * n).sin()


KINDS = [
    *(Printing, Branching, ChangingLate, Checking),
    *(Reading, ReadingAnInteger, ReadingInAnOperation, ReadingBefore),
]


def _gradients(function: nn.Module) -> list[Tensor | None]:
    found = []
    for value in (0.5, 1.0, -1.0, 2.0):
        x = torch.full((2,), value, requires_grad=True)
        function(x).sum().backward()
        found.append(x.grad)
    return found


@pytest.mark.parametrize(
    "backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_of_the_contents_that_an_argument_had(
    kind: type[nn.Module], backend: str
) -> None:
    expected = _gradients(kind())
    module = kind()
    compiled = torch.compile(bcmend.patch(module), backend=backend, fullgraph=True)
    torch.testing.assert_close(_gradients(compiled), expected)


def test_a_graph_of_the_same_text_in_a_cache_is_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stock keeps its graph on disk, whose backward is computed from the new contents."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))

    class Plain(Counting):
        def forward(self, x: Tensor) -> Tensor:
            self.total += 1
            return (x * self.total.sum().add(1)).sin()

    torch.compile(Plain(), fullgraph=True)(torch.ones(2, requires_grad=True)).sum().backward()
    torch._dynamo.reset()
    module = Printing()
    compiled = torch.compile(bcmend.patch(module), fullgraph=True)
    torch.testing.assert_close(_gradients(compiled), _gradients(Printing()))
