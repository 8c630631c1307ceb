"""Matching what is found with what is there, by scipy: an operator of one graph."""

from __future__ import annotations

from typing import Any, Final

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bcmend
from bcmend.knowledge.qualified_names import resolved
from tests.equivalence import Call, assert_equivalent, call

pytest.importorskip("scipy")

from scipy.optimize import linear_sum_assignment


class Detector(nn.Module):
    """Boxes are matched picture by picture, each with as many labels as it has."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    @torch.no_grad()
    def match(self, found: Tensor, labels: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
        costs = -found.flatten(0, 1).softmax(-1)[:, torch.cat(labels)]
        split = costs.view(2, 5, -1).cpu().split([len(each) for each in labels], -1)
        pairs = [linear_sum_assignment(each[place]) for place, each in enumerate(split)]
        return [
            (torch.as_tensor(i, dtype=torch.int64), torch.as_tensor(j, dtype=torch.int64))
            for i, j in pairs
        ]

    def forward(self, x: Tensor, labels: list[Tensor]) -> Tensor:
        found = self.layer(x)
        pairs = self.match(found, labels)
        picture = torch.cat([torch.full_like(i, place) for place, (i, _) in enumerate(pairs)])
        boxes = torch.cat([i for i, _ in pairs])
        goal = torch.full(found.shape[:2], 2)
        goal[picture, boxes] = torch.cat(
            [each[j] for each, (_, j) in zip(labels, pairs, strict=True)]
        )
        return F.cross_entropy(found.transpose(1, 2), goal)


def calls() -> list[Call]:
    torch.manual_seed(3)
    labels = [[0, 1, 1], [2]], [[2, 0, 0], [1]], [[1, 1, 0], [0]]
    return [call(torch.randn(2, 5, 4), [torch.tensor(each) for each in some]) for some in labels]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("fullgraph", [False, True])
def test_pairs_of_least_costs(training: bool, backend: str, fullgraph: bool) -> None:
    assert_equivalent(Detector, calls, training=training, backend=backend, fullgraph=fullgraph)


def largest(x: Tensor) -> Any:
    rows, columns = linear_sum_assignment(x, maximize=True)
    return x[rows, columns].sum(), rows, columns


def of_an_array(x: Tensor) -> Any:
    rows, columns = linear_sum_assignment(x.double().numpy() * 2)
    return rows + 1, columns, x[torch.from_numpy(rows), columns]


def of_integers(x: Tensor) -> Any:
    costs = (x * 100).round().long()
    return [torch.as_tensor(each) for each in linear_sum_assignment(cost_matrix=costs.T)]


def in_an_arm(x: Tensor) -> Any:
    y = x * 2
    if x.sum() > 0:
        rows, columns = linear_sum_assignment(x.detach())
        y = y + x[rows, columns].sum()
    return y


def of_selected_rows(x: Tensor) -> Any:
    rows, columns = linear_sum_assignment(x[x[:, 0] > 0])
    return torch.as_tensor(rows), torch.as_tensor(columns)


PROGRAMS: Final = (largest, of_an_array, of_integers, in_an_arm, of_selected_rows)


def tables() -> list[Call]:
    torch.manual_seed(5)
    return [call(torch.randn(4, 3)) for _ in range(3)]


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_given_and_returned(program: Any, backend: str) -> None:
    assert_equivalent(lambda: program, tables, backend=backend, fullgraph=True)


def test_what_it_does_not_take() -> None:
    table = torch.randn(3, 3)
    assert_equivalent(
        lambda: largest,
        lambda: [call(table), call(table / 0), call(torch.full((3, 3), -torch.inf))],
        fullgraph=True,
    )


def test_costs_with_gradients_are_left_to_torch() -> None:
    def program(x: Tensor) -> Any:
        return linear_sum_assignment(x * 2)

    x = torch.randn(3, 3, requires_grad=True)
    with pytest.raises(RuntimeError) as of_eager:
        program(x)
    mended = bcmend.patch(program)
    with pytest.raises(RuntimeError) as found:
        torch.compile(mended, backend="eager")(x)
    assert str(found.value) == str(of_eager.value)


def test_the_function_is_found() -> None:
    assert resolved("scipy.optimize.linear_sum_assignment") is linear_sum_assignment
