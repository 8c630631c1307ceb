"""Counts of how often each number occurs, taken out of a tensor whose length the data decide."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.equivalence import Call, assert_equivalent, call, fresh

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


class _Experts(nn.Module):
    """Gives each row to the one of three layers that a weight chooses, sorted by layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.router = nn.Linear(4, 3)
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        chosen = self.router(x).argmax(-1)
        order = chosen.argsort(stable=True)
        counts = torch.bincount(chosen, minlength=3).cpu().tolist()
        parts = zip(self.experts, x[order].split(counts), strict=True)
        results = torch.cat([expert(part) for expert, part in parts])
        found = torch.empty_like(results)
        found[order] = results
        return found


def _rows() -> list[Call]:
    torch.manual_seed(1)
    rows = [torch.randn(10, 4) for _ in range(3)]
    return [call(each) for each in (*rows, rows[0][:1].repeat(10, 1))]


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_experts_are_one_graph(training: bool, fullgraph: bool) -> None:
    assert_equivalent(_Experts, _rows, training=training, fullgraph=fullgraph)


@pytest.mark.slow
@pytest.mark.parametrize("training", [True, False])
def test_experts_with_inductor(training: bool) -> None:
    assert_equivalent(_Experts, _rows, training=training, backend="inductor")


def _shares(x: Tensor) -> tuple[Tensor, int, list[int]]:
    chosen = (x[:, 0] * 2).relu().long()
    counts = chosen.bincount(minlength=3).tolist()
    return x * counts[0], len(counts), counts


@pytest.mark.parametrize("fullgraph", [True, False])
def test_a_number_that_is_not_expected_gives_a_count_more(fullgraph: bool) -> None:
    def rows() -> list[Call]:
        return [call(torch.tensor([[each], [0.5], [1.0]])) for each in (0.0, 1.2, 2.6, 0.3)]

    assert_equivalent(
        lambda: fresh(_shares), rows, fullgraph=fullgraph, graphs=None, recompiles=None
    )
