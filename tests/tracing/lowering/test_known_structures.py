"""What an operator returns is learned once for graphs of one structure."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn

import bcmend
from bcmend.dynamo import compat


class Layers(nn.Module):
    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        pairs = list(pairwise(sizes))
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairs)
        self.other = nn.ModuleList(nn.Linear(*pair) for pair in pairs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for one, other in zip(self.layers, self.other, strict=True):
            x = one(x).tanh() if x.sum() > 0 else other(x).exp()
        return x


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the choices that torch traces itself, as they come."""
    torch._dynamo.reset()  # no size of an earlier model makes one dynamic
    found: list[Any] = []
    wrap = compat.wrap_fx_proxy

    def counting(tx: Any, proxy: Any, *rest: Any, **named: Any) -> Any:
        if proxy.node.target is torch.ops.higher_order.cond and not rest:
            found.append(proxy)
        return wrap(tx, proxy, *rest, **named)

    monkeypatch.setattr(compat, "wrap_fx_proxy", counting)
    return found


@pytest.mark.parametrize(
    ("sizes", "times"), [([4] * 6, 1), ([4, 5, 4, 5, 4], 2), ([3, 4, 5, 6], 3)]
)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_torch_traces_each_structure_once(
    sizes: list[int], times: int, backend: str, traced: list[Any]
) -> None:
    torch.manual_seed(0)
    model = Layers(sizes)
    inputs = [(sign * torch.rand(2, sizes[0])).requires_grad_() for sign in (1, -1)]

    def gradients(called: Callable[..., Any]) -> list[Any]:
        found = []
        for each in inputs:
            model.zero_grad()
            result = called(each)
            result.sum().backward()
            found.append((result.detach(), [weight.grad for weight in model.parameters()]))
        return found

    expected = gradients(model)
    bcmend.patch(model, policy=bcmend.Policy(branch="cond"))
    found = gradients(torch.compile(model, backend=backend, fullgraph=True))
    bcmend.unpatch(model)
    assert len(traced) == times
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_results_of_a_known_structure_may_be_changed_in_place() -> None:
    def program(x: torch.Tensor, weights: list[torch.Tensor]) -> torch.Tensor:
        for weight in weights:
            x = (x @ weight).relu() if x.sum() > 0 else (x - weight).exp()
            x.add_(1.0)
        return x

    weights = [torch.rand(3, 3, requires_grad=True) for _ in range(3)]
    expected = program(torch.ones(3, 3), weights)
    bcmend.patch(program, policy=bcmend.Policy(branch="cond"))
    compiled = torch.compile(program, backend="aot_eager", fullgraph=True)
    assert compiled(torch.ones(3, 3), weights).equal(expected)
    bcmend.unpatch(program)
