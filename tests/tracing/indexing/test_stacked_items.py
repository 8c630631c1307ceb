"""Lists of tensors of one number each, read as one tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from tests.equivalence import assert_equivalent, call

Program = Callable[[Tensor, Tensor], Any]


def _inputs() -> list[Any]:
    places = ([0, 2, 1], [1, 1, 0])
    return [
        call(torch.arange(9.0).reshape(3, 3) * sign, torch.tensor(each))
        for each in places
        for sign in (1, -1)
    ]


def _doubled_if_positive(x: Tensor) -> Tensor:
    return x * 2 if x.sum() > 0 else x * 1


def _assert_equivalent(program: Program) -> None:
    def run(x: Tensor, places: Tensor) -> Any:
        return _doubled_if_positive(x), program(x, places)

    assert_equivalent(lambda: run, _inputs)


@pytest.mark.parametrize(
    "program",
    [
        lambda x, places: torch.as_tensor([places[0]]),
        lambda x, places: torch.as_tensor([places[0], 7], dtype=torch.long),
        lambda x, places: torch.as_tensor((places[0], x.size(0)), dtype=torch.long, device="cpu"),
        lambda x, places: torch.as_tensor(
            [[places[0], places[1]], [places[2], 3]], dtype=torch.long
        ),
        lambda x, places: torch.as_tensor([places[0].int(), places[1]], dtype=torch.int64),
        lambda x, places: torch.as_tensor([x[0, 0], x[1, 1]]),
        lambda x, places: torch.as_tensor(list(places)),
    ],
)
def test_tensors_in_lists(program: Program) -> None:
    _assert_equivalent(program)


def _kept(x: Tensor, places: Tensor) -> list[int]:
    first = 0
    for each in places[:2]:
        if each > 0:
            first += 1
    return [first, int(places[2])]


@pytest.mark.parametrize(
    "program",
    [
        lambda x, places: x[[int(places[0]), 1]],
        lambda x, places: x[:, [places[0].item(), places[1].item() - 3]],
        lambda x, places: x[:, [[int(places[0])], [2]]],
        lambda x, places: x[_kept(x, places)],
        lambda x, places: x[_kept(x, places), [0, int(places[1])]],
    ],
)
@pytest.mark.parametrize("training", [False, True])
def test_numbers_in_lists(program: Program, training: bool) -> None:
    def run(x: Tensor, places: Tensor) -> Any:
        return _doubled_if_positive(x), program(x, places)

    assert_equivalent(lambda: run, _inputs, training=training)


@pytest.mark.parametrize(
    "program",
    [
        lambda x, places: x[[[int(places[0])], [2]]],
        lambda x, places: x[[places[0], places[1]]],
        lambda x, places: x[[places[0], 1]],
    ],
)
def test_a_list_of_lists_or_tensors_is_a_tuple(program: Program) -> None:
    assert_equivalent(lambda: program, _inputs, fullgraph=False, graphs=None, recompiles=None)


def test_a_number_that_is_no_place_fails_as_in_eager_execution() -> None:
    def program(x: Tensor, places: Tensor) -> Any:
        return x[[int(places[0]) + 3, 0]]

    assert_equivalent(lambda: program, _inputs, graphs=None, recompiles=None)


def test_the_tensor_has_memory_of_its_own() -> None:
    def program(x: Tensor, places: Tensor) -> Any:
        first = places[0]
        found = torch.as_tensor([first])
        first += 1
        return found, places * 1

    _assert_equivalent(program)


@pytest.mark.parametrize(
    "program",
    [
        lambda x, places: torch.as_tensor([x[0, 0], places[0]]),  # promoted
        lambda x, places: torch.as_tensor([x[0, 1]], dtype=torch.long),  # cut off, or an error
        lambda x, places: torch.as_tensor([places[0], 0.5], dtype=torch.long),
    ],
)
def test_numbers_that_would_change_are_not_stacked(program: Program) -> None:
    def run(x: Tensor, places: Tensor) -> Any:
        return _doubled_if_positive(x), program(x, places)

    found: list[str] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        found.append(graph.print_readable(print_output=False))
        return graph.forward

    with bcmend.patched(run), pytest.raises(torch._dynamo.exc.TorchDynamoException):
        torch.compile(run, backend=backend, fullgraph=True)(torch.ones(3, 3), torch.ones(2).long())
    assert not any("stack" in each for each in found)


def _written_at_a_range(x: Tensor, places: Tensor) -> Any:
    found = torch.nonzero(x[:, 1] > 0)[:, 0]
    y = torch.zeros(found.shape[0], 3)
    y[range(found.shape[0]), found] = 0.5
    first = int(places[0])
    y[range(min(first, found.shape[0]))] += 1
    return y, x[range(first), 0], x[:, range(first - 1, 3)], y[range(found.shape[0]), found]


@pytest.mark.parametrize("training", [False, True])
def test_ranges(training: bool) -> None:
    """One up to a negative number has nothing."""
    assert_equivalent(lambda: _written_at_a_range, _inputs, training=training)


def _stored(x: Tensor, places: Tensor) -> Any:
    y = x.clone()
    rows, columns = zip(*torch.stack([places, places.flip(0)], 1), strict=True)
    y[rows, columns] = -1.0
    return y


@pytest.mark.parametrize(
    "program",
    [
        lambda x, places: x[(places[0], places[1]), (0, 1)],
        lambda x, places: x[(places[0], 2), :],
        lambda x, places: x[:, [places[0], places[1]]],
        lambda x, places: x[(places[0] - 3, places[1]), places[:2]],
        _stored,
    ],
)
def test_indices(program: Program) -> None:
    _assert_equivalent(program)


def test_bytes_are_no_places() -> None:
    def run(x: Tensor, places: Tensor) -> Any:
        bytes_ = places.to(torch.uint8)
        return _doubled_if_positive(x), x[:, (bytes_[0], bytes_[1], bytes_[2])]

    assert_equivalent(
        lambda: run,
        lambda: [call(torch.ones(3, 3), torch.tensor([0, 1, 1]))],
        fullgraph=False,
        graphs=None,
    )
