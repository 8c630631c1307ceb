"""Numbers out of tensors that one side of a branch stores in a list or a dictionary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.equivalence import Call, assert_equivalent, call


def _calls() -> list[Call]:
    torch.manual_seed(3)
    drawn = [call(torch.randn(6) * 2) for _ in range(3)]
    return [*drawn, call(-torch.ones(6)), call(torch.full((6,), 3.0))]


class _Binned(nn.Module):
    """Weights of elements by how many are alike, as a moving average for each bin."""

    def __init__(self) -> None:
        super().__init__()
        self.totals = [0.0] * 8
        self.weight = nn.Parameter(torch.ones(6))

    def forward(self, x: Tensor) -> Tensor:
        y = x * self.weight
        weights, filled = torch.zeros_like(x), 0
        for i in range(8):
            inside = (x > i / 2 - 2) & (x <= i / 2 - 1.5)
            count = inside.sum().item()
            if count > 0:
                self.totals[i] = 0.75 * self.totals[i] + 0.25 * count
                weights[inside] = 1 / self.totals[i]
                filled += 1
        if filled > 0:
            weights = weights / filled
        return (y * weights).sum()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
)
def test_averages_of_many_bins(backend: str, training: bool) -> None:
    """The first call has constants in the list, the next ones have numbers."""
    assert_equivalent(
        _Binned, _calls, backend=backend, training=training, graphs=None, recompiles=None
    )


def _of_the_call(x: Tensor) -> Any:
    totals, counts = [0.0] * 6, {"above": 0}
    for i in range(6):
        value = x[i].item()
        if value > 0:
            totals[i] = value * 2
            counts["above"] += int(value)
    return x * totals[0] + counts["above"], totals, counts


def _nested(x: Tensor) -> Any:
    best = [0.0, 1.0]
    for i in range(5):
        if x[i] > 0:
            if x[i] > best[0]:
                best[0] = x[i].item()
            best[1] = best[1] * 0.5 + x[i + 1].item()
    return best, x / (best[1] * best[1] + 1)


def _of_another_type(x: Tensor) -> Any:
    found = [0, 0.5]
    if x[0] > 0:
        found[0] = x[0].item()
    if x[1] > 0:
        found[1] = 2
    return found, x * found[0]


@pytest.mark.parametrize("program", [_of_the_call, _nested])
def test_one_graph_for_all_numbers(program: Callable[[Tensor], Any]) -> None:
    assert_equivalent(lambda: program, _calls)


def test_numbers_of_two_types_are_kept_apart() -> None:
    assert_equivalent(lambda: _of_another_type, _calls, graphs=None, recompiles=None)


def _turns(x: Tensor) -> Any:
    turns = [1, 2]
    if x.sum() > 0:
        turns[0] = int((x > 0).sum())
    for _ in range(turns[0]):
        x = x * 2
    return x, turns


def _size(x: Tensor) -> Any:
    sizes = {"of": 1}
    if x.sum() > 0:
        sizes["of"] = int((x > 0).sum())
    return torch.ones(sizes["of"]).sum() + x, sizes


@pytest.mark.parametrize("program", [_turns, _size])
@pytest.mark.parametrize("fullgraph", [False, True])
def test_numbers_that_have_to_be_known(program: Callable[[Tensor], Any], fullgraph: bool) -> None:
    assert_equivalent(lambda: program, _calls, fullgraph=fullgraph, graphs=None, recompiles=None)


def test_zeros_keep_their_sign_and_nan_is_one() -> None:
    def program(x: Tensor) -> Any:
        found = [-0.0, 1.0, 2.0]
        for i in range(3):
            if x[i] > 0:
                found[i] = x[i + 3].item()
        return found

    special = torch.tensor([1.0, 1.0, 1.0, -0.0, float("nan"), float("inf")])
    assert_equivalent(lambda: program, lambda: [call(-special), call(special), *_calls()])
