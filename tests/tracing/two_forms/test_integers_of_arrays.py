"""Integers of numpy's: counts of rows, as a mixture of experts reads them, places and lengths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.equivalence import Call, assert_equivalent, call, compare

COUNTS = (
    (0, 6, 0, 0), (1, 2, 3, 0), (2, 2, 1, 1), (0, 0, 0, 6), (3, 0, 3, 0), (5, 1, 0, 0),
    (0, 1, 5, 0), (1, 1, 4, 0), (4, 0, 1, 1), (2, 0, 2, 2), (5, 0, 1, 0),
)  # fmt: skip


def _calls() -> list[Call]:
    rows = torch.linspace(-2, 3, 24).reshape(6, 4)
    return [call(rows + place, torch.tensor(each)) for place, each in enumerate(COUNTS)]


class Experts(nn.Module):
    """Each expert is given the rows that are its own, if there are any."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))

    def forward(self, rows: Tensor, counts: Tensor) -> Tensor:
        results, start = [], 0
        for place, count in enumerate(counts.cpu().numpy()):
            end = start + count
            if count == 0:
                continue
            results.append(self.experts[place](rows[start:end]))
            start = end
        return torch.cat(results)


def _item(rows: Tensor, counts: Tensor) -> Any:
    places = counts.numpy() - 3
    return rows[places[0]] * 2, rows[:, places[1]].sum()


def _turns(rows: Tensor, counts: Tensor) -> Any:
    total = rows * 0
    for turn in range(counts.numpy()[0]):
        total = total + rows * turn
    return total


def _last(rows: Tensor, counts: Tensor) -> Any:
    length: Any = 0
    for count in counts.numpy():
        if count > 2:
            length = count
    return rows * length, rows[:length] * 2, rows / (length + 1)


def _quotient(rows: Tensor, counts: Tensor) -> Any:
    last: Any = 0
    for count in counts.numpy():
        if count > 4:
            last = count - 5
    return rows * (1 / last)


PROGRAMS = [_item, _turns, _last]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_mixture_of_experts_is_one_graph_for_all_counts(backend: str) -> None:
    torch.manual_seed(0)
    found = assert_equivalent(
        Experts, _calls, fullgraph=True, backend=backend, training=backend != "eager"
    )
    assert (found.graphs, found.recompiles) == (1, 0)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_it_is_one_graph(program: Callable[..., Any]) -> None:
    found = assert_equivalent(lambda: program, _calls, fullgraph=True)
    assert (found.graphs, found.recompiles) == (1, 0)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_gradients_flow(program: Callable[..., Any]) -> None:
    assert_equivalent(lambda: program, _calls, fullgraph=True, backend="aot_eager", training=True)


def test_an_error_is_the_one_of_eager_execution() -> None:
    def out_of_range() -> list[Call]:
        return [*_calls(), call(torch.ones(6, 4), torch.tensor((12, 3, 0, 0)))]

    assert_equivalent(lambda: _item, out_of_range, fullgraph=True)
    assert_equivalent(lambda: _quotient, _calls, fullgraph=True)


def _returned(rows: Tensor, counts: Tensor) -> Any:
    total: Any = 0
    for count in counts.numpy():
        if count > 1:
            total = total + count
    return rows * 2, total


def test_an_integer_of_an_array_leaves_as_one_of_python() -> None:
    found = compare(lambda: _returned, _calls, fullgraph=True)
    assert len(found.differences) == len(COUNTS)
    for each, counts in zip(found.differences, COUNTS, strict=True):
        total = sum(count for count in counts if count > 1)
        assert each.endswith(f"result.[1]: int64 np.int64({total}) and int {total}")
