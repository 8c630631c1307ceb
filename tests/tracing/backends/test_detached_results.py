"""Detached tensors that are kept beside results that Inductor takes for the same tensor."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend

import bcmend
from bcmend.tracing.backends import detached_results

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


class Kept(nn.Module):
    """Keeps what it computes without its history, and returns the loss."""

    def __init__(self, which: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.kept: list[Tensor] = []
        self.which = which

    def forward(self, x: Tensor) -> Any:
        loss = x * self.weight
        if loss.sum() > 20:
            print("large")
        self.kept.append(loss.detach())
        return getattr(self, self.which)(loss)

    def summed(self, loss: Tensor) -> Any:
        return loss + 0 * (self.kept[0] + self.kept[-1])

    def copied(self, loss: Tensor) -> Any:
        return (loss + torch.zeros(3)).clone()

    def copied_of_any_size(self, loss: Tensor) -> Any:
        return (loss + torch.zeros_like(loss)).clone()

    def multiplied(self, loss: Tensor) -> Any:
        return torch.ones(3).mul(loss) - torch.zeros(3)

    def two(self, loss: Tensor) -> Any:
        self.kept.append(loss.data)
        return loss / torch.ones(3), loss.sin()

    def itself(self, loss: Tensor) -> Any:
        return loss, loss + torch.zeros(3)

    def unchanged(self, loss: Tensor) -> Any:
        return loss * 0.5


def _observed(module: Kept, program: Any) -> list[Any]:
    found: list[Any] = []
    for number in (1.0, 2.0):
        result = program(torch.full((3,), number))
        results = result if isinstance(result, tuple) else (result,)
        sum(each.sum() for each in results).backward()
        assert module.weight.grad is not None
        found += [(each.requires_grad, each.tolist()) for each in (*results, *module.kept)]
        found += [module.weight.grad.tolist(), any(each is module.kept[-1] for each in results)]
    return found


@pytest.mark.parametrize(
    "which",
    [
        "summed",
        "copied",
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in ("multiplied", "two", "itself", "unchanged")
        ),
    ],
)
@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
def test_a_result_keeps_its_history_beside_what_is_kept_without(which: str, backend: str) -> None:
    eager, module = Kept(which), Kept(which)
    compiled = torch.compile(bcmend.patch(module), backend=backend, fullgraph=True)
    found, wanted = _observed(module, compiled), _observed(eager, eager)
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one == pytest.approx(other) if isinstance(one, list) else one == other


@pytest.mark.parametrize(
    ("which", "copies"), [("summed", True), ("unchanged", False), ("itself", False)]
)
def test_only_what_may_be_one_is_copied(
    which: str, copies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[bool] = []
    inner = detached_results._copy_detached
    monkeypatch.setattr(
        detached_results, "_copy_detached", lambda graph: found.append(inner(graph)) or found[-1]
    )
    compiled = torch.compile(bcmend.patch(Kept(which)), backend="eager", fullgraph=True)
    compiled(torch.ones(3))
    assert found == [copies]


def test_sizes_that_vary_are_not_asked_for() -> None:
    module = Kept("copied_of_any_size")
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(bcmend.patch(module), backend=counter, fullgraph=True, dynamic=True)
    module.weight = nn.Parameter(torch.ones(1))
    for size in (3, 4, 5):
        module.kept.clear()
        result = compiled(torch.ones(size, 2))
        assert result.requires_grad and not module.kept[-1].requires_grad
        assert module.kept[-1].equal(result) and module.kept[-1].stride() == (2, 1)
    assert counter.frame_count == 1
    names = [node.target for node in counter.graphs[0].graph.nodes]
    assert names.count("clone") == 2
