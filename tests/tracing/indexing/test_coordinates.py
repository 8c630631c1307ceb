"""``torch.sparse_coo_tensor(indices, values, size)`` and what is done with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from bcmend.dynamo.values import constant
from bcmend.tracing.indexing.coordinates import sparse_tensor
from tests.equivalence import Call, assert_equivalent, call
from tests.tracing.in_trace import during_trace


def _contingency(x: Tensor, y: Tensor) -> Tensor:
    first, i = torch.unique(x, return_inverse=True)
    second, j = torch.unique(y, return_inverse=True)
    ones = torch.ones(i.shape[0], dtype=i.dtype)
    counts = torch.sparse_coo_tensor(torch.stack((i, j)), ones, (first.size(0), second.size(0)))
    counts = counts.to_dense()
    return counts + 0.5 if x.sum() > y.sum() else counts


def _of_fractions(x: Tensor, y: Tensor) -> Tensor:
    places = torch.stack((x, y))
    values = x / 3
    noted = torch.sparse_coo_tensor(places, values, (5, 5))
    values.add_(y)
    places[0, 0] = 4
    return noted.to_dense() if x.sum() > y.sum() else values


def _of_one_dimension(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    dense = torch.sparse_coo_tensor(x[None], y, [6]).to_dense()
    other = torch.sparse_coo_tensor(x[None], y * 2, torch.Size([6])).to_dense()
    return (dense, other) if x.sum() > y.sum() else (other, dense)


def _calls() -> list[Call]:
    pairs = [([1, 2, 3], [0, 0, 1]), ([1, 1, 1], [0, 3, 3]), ([0, 1, 0, 1], [1, 2, 1, 0])]
    return [call(*map(torch.tensor, each)) for each in pairs]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [_contingency, _of_fractions, _of_one_dimension])
def test_numbers_are_summed_up_at_their_places(program: Callable[..., Any], backend: str) -> None:
    assert_equivalent(lambda: program, _calls, backend=backend, graphs=None, recompiles=None)


def _coalesced(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    noted = torch.sparse_coo_tensor(torch.stack((x, y)), x / 3, (5, 5))
    again = noted
    assert isinstance(noted, Tensor)
    return (noted.coalesce().values(), again.to_dense() + (1 if x.sum() > y.sum() else 2))


def _of_values_with_gradients(x: Tensor, y: Tensor) -> Tensor:
    values = (x / 3).requires_grad_()
    dense = torch.sparse_coo_tensor(torch.stack((x, y)), values, (5, 5)).to_dense()
    dense.square().sum().backward()
    assert values.grad is not None
    return values.grad


def _of_other_forms(x: Tensor, y: Tensor) -> Tensor:
    of_rows = torch.sparse_coo_tensor(x[None], torch.stack((x, y), 1), (5, 2))
    without_a_size = torch.sparse_coo_tensor(x[None], y)
    return torch.cat([of_rows.to_dense().flatten(), without_a_size.to_dense()])


PROGRAMS = [_coalesced, _of_values_with_gradients, _of_other_forms]


@pytest.mark.parametrize("program", PROGRAMS)
def test_all_else_is_left_to_torch(program: Callable[..., Any]) -> None:
    assert_equivalent(lambda: program, _calls, fullgraph=False, graphs=None, recompiles=None)


# The first one of a process, given in a module of bcmend, would be an error here.
@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_the_warning_of_torch_is_given_when_the_graph_runs() -> None:
    compiled = torch.compile(bcmend.patch(_of_one_dimension), backend="eager", fullgraph=True)
    given = torch.tensor([1, 2, 3]), torch.tensor([0, 0, 1])
    compiled(*given)
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with pytest.warns(UserWarning, match="Sparse invariant checks"):
            compiled(*given)
    finally:
        torch.set_warn_always(before)


@pytest.mark.parametrize(
    ("places", "values", "size"),
    [
        (torch.zeros(2, 3, dtype=torch.int64), torch.ones(3), (2,)),
        (torch.zeros(1, 3, dtype=torch.int64), torch.ones(2), (2,)),
        (torch.zeros(1, 3, dtype=torch.int64), torch.ones(3), (-2,)),
        (torch.zeros(1, 3, dtype=torch.int32), torch.ones(3), (2,)),
        (torch.zeros(3, dtype=torch.int64), torch.ones(3), (2,)),
        (torch.zeros(1, 3, dtype=torch.int64), torch.ones(3), (2.0,)),
    ],
)
def test_what_fails_is_passed_on(places: Tensor, values: Tensor, size: tuple[Any, ...]) -> None:
    def made(tx: Any, *given: Any) -> Any:
        return sparse_tensor(*(each.realize() for each in given), constant(size))

    assert during_trace(made, places, values) is None
