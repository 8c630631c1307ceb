"""Histories of gradients that one arm gives tensors, and how the other arm meets these."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.equivalence import Call, assert_equivalent, call


class _Expert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.expert = nn.Linear(3, 3)


class _AsksWhatTheOtherSideChanged(_Expert):
    """Asks on one side what is true only after the other: ``y`` has no history there."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        if x.sum() > 0:
            y[:2] = self.expert(x[:2])
        elif y.requires_grad:
            x = x + 1
        return x * 2 + y


class _AsksWhetherItIsALeaf(_Expert):
    """On torch 2.15 the question is an operation on ``y``, and the branch is left."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        if x.sum() > 0:
            y[:2] = self.expert(x[:2])
        elif not y.is_leaf:
            x = x + 1
        return x * 2 + y


class _AsksBeforeItsOwnChange(_Expert):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        if x.sum() > 0:
            y[:2] = self.expert(x[:2])
        else:
            if y.requires_grad:
                x = x + 1
            y[1:] = self.expert(x[1:])
            if y.requires_grad:
                x = x + 2
        return x * 2 + y


class _ChangesOnOneSide(_Expert):
    """One side gives ``y`` a history, the other changes it without."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        if x.sum() > 0:
            y[:2] = self.expert(x[:2])
        else:
            y[1:] = 3.0
        return x * y


class _ExpertsOfLimitedCapacity(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(3, 2)
        self.experts = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.gate(x).softmax(-1).max(-1)
        y = torch.zeros_like(x)
        for place, expert in enumerate(self.experts):
            rows = (chosen == place).nonzero()[:, 0]
            if rows.numel() == 0:
                continue
            if rows.numel() > 2:
                rows = rows[weights[rows].topk(2).indices]
            y[rows] = weights[rows, None] * expert(x[rows])
        return y


def _rows(seed: int, shift: float = 0.0) -> Tensor:
    return torch.randn(5, 3, generator=torch.Generator().manual_seed(seed)) + shift


def _both_sides() -> list[Call]:
    return [call(_rows(1, shift)) for shift in (3.0, -3.0, 3.0)]


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("make", [_AsksWhatTheOtherSideChanged, _AsksBeforeItsOwnChange])
def test_an_arm_meets_tensors_without_the_history_that_the_other_gives_them(
    make: type[nn.Module], backend: str
) -> None:
    assert_equivalent(make, _both_sides, training=True, backend=backend)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_experts_of_limited_capacity_store_their_rows_in_one_graph(backend: str) -> None:
    assert_equivalent(
        _ExpertsOfLimitedCapacity,
        lambda: [call(_rows(seed)) for seed in range(3)],
        training=True,
        backend=backend,
    )


@pytest.mark.parametrize("make", [_ChangesOnOneSide, _AsksWhetherItIsALeaf])
def test_a_history_that_is_met_otherwise_is_right_in_any_number_of_graphs(
    make: type[nn.Module],
) -> None:
    assert_equivalent(
        make,
        _both_sides,
        training=True,
        fullgraph=False,
        graphs=None,
        recompiles=None,
    )
