"""What an index names: which parts of it are data-dependent, and which are refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bcmend.dynamo import compat
from bcmend.dynamo.values import constant
from bcmend.tracing.indexing import index_parts
from bcmend.tracing.indexing.index_parts import Item, Slice
from bcmend.tracing.numbers import scalars
from tests.tracing.in_trace import during_trace

TWO = torch.tensor(2)
N = "the number"
ALL = slice(None)


def _model(value: Any, number: Any) -> Any:
    if isinstance(value, tuple):
        return compat.TupleVariable([_model(each, number) for each in value])
    if isinstance(value, slice):
        bounds = (value.start, value.stop, value.step)
        return compat.SliceVariable([_model(each, number) for each in bounds])
    return number if value is N else constant(value)


def _described(axis: Any, number: Any) -> Any:
    """Return an axis with ``N`` for the number, and constants as themselves."""

    def bound(value: Any) -> Any:
        return N if value is number else value and value.as_python_constant()

    if isinstance(axis, Slice):
        return slice(bound(axis.start), bound(axis.stop), axis.step)
    return bound(axis.number) if isinstance(axis, Item) else None


def _part(dimensions: int, key: Any, *, as_tensor: bool = False) -> Any:
    """Return the known index and the axes of a part; ``None`` where nothing is handled."""

    def body(tx: Any, x: Any) -> Any:
        number = x if as_tensor else scalars.take(tx, x)
        part = index_parts.part_of(tx, dimensions, _model(key, number))
        if part is None:
            return None
        return part.example, tuple(_described(each, number) for each in part.axes), part.is_whole

    return during_trace(body, TWO)


@pytest.mark.parametrize(
    ("dimensions", "key", "expected"),
    [
        (1, N, ((ALL,), (N,), True)),
        (3, N, ((ALL,), (N, None, None), True)),
        (2, (N, 0), ((ALL, 0), (N,), False)),
        (2, (0, N), ((0, ALL), (N,), False)),
        (3, (..., N), ((..., ALL), (None, None, N), True)),
        (3, (N, ..., 1), ((ALL, ..., 1), (N, None), False)),
        (2, (None, N), ((None, ALL), (None, N, None), False)),
        (1, slice(N, None), ((ALL,), (slice(N, None, 1),), True)),
        (2, slice(1, N, 2), ((ALL,), (slice(1, N, 2), None), True)),
        (2, (slice(0, 1), N), ((slice(0, 1), ALL), (None, N), False)),
    ],
    ids=str,
)
def test_parts_of_an_index(dimensions: int, key: Any, expected: Any) -> None:
    assert _part(dimensions, key) == expected


def test_a_tensor_of_one_integer_is_an_item() -> None:
    assert _part(2, (0, N), as_tensor=True) == ((0, ALL), (N,), False)


@pytest.mark.parametrize(
    ("dimensions", "key"),
    [
        (2, 0),
        (2, (0, slice(1, 2))),
        (1, (N, 0)),
        (3, (..., N, ...)),
        (1, slice(0, 2, N)),
        (1, slice(N, None, -1)),
        (1, slice(N, None, 0)),
        (1, slice(N, "a")),
        (2, (N, True)),
        (2, (N, "a")),
    ],
    ids=str,
)
def test_indices_that_are_left_to_dynamo(dimensions: int, key: Any) -> None:
    assert _part(dimensions, key) is None


@pytest.mark.parametrize(
    ("tensor", "is_item"),
    [
        (TWO, True),
        (torch.tensor(2, dtype=torch.int8), True),
        (torch.tensor([2]), False),
        (torch.tensor(True), False),
        (torch.tensor(2, dtype=torch.uint8), False),
    ],
    ids=str,
)
def test_which_tensors_are_places(tensor: Any, is_item: bool) -> None:
    assert during_trace(index_parts.is_item, tensor) is is_item


def test_items_of_an_index() -> None:
    one, two = constant(1), constant(2)
    assert index_parts.items_of(compat.TupleVariable([one, two])) == [one, two]
    assert index_parts.items_of(one) == [one]


@pytest.mark.parametrize(("value", "names"), [(None, False), (..., False), (0, True)])
def test_what_names_a_dimension(value: Any, names: bool) -> None:
    assert index_parts.names_dimension(constant(value)) is names
