"""Stores as a select for every element, written into a graph directly."""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

import pytest
import torch

from bcmend.dynamo import compat
from bcmend.dynamo.values import constant
from bcmend.tracing.indexing import masked_writes
from bcmend.tracing.indexing.index_parts import Item, Part, Slice
from bcmend.tracing.numbers import predicates, scalars
from tests.tracing.in_trace import during_trace, trace


def _stored(key: Any, value: Any, numbers: Any, sizes: Any = (4,)) -> tuple[Any, bool]:
    """Store by positions in ``numbers``; return the tensor, and whether the store fails."""

    def body(tx: Any, x: Any, given: Any, places: Any) -> Any:
        items = compat.unpack_iterable(tx, places)
        taken = [scalars.take(tx, each.realize()) for each in items]
        axes = [_axis(each, taken) for each in key]
        known = compat.TupleVariable([compat.SliceVariable([constant(None)]) for _ in key])
        stored = x.call_method(tx, "clone", [], {})
        misfits = masked_writes.Store(tx, Part(known, tuple(axes)), stored).write(given)
        fails = reduce(partial(predicates.either, tx), misfits) if misfits else constant(False)
        return compat.TupleVariable([stored, fails])

    x = torch.zeros(sizes, dtype=torch.int64)
    found, fails = trace(body, x, value, torch.tensor(numbers))
    return found.tolist(), bool(fails)


def _axis(axis: Any, taken: Any) -> Any:
    if isinstance(axis, slice):
        bounds = (None if each is None else taken[each] for each in (axis.start, axis.stop))
        return Slice(*bounds, axis.step or 1)
    return None if axis is None else Item(taken[axis])


ONE = torch.tensor(7)


@pytest.mark.parametrize(
    ("place", "expected"),
    [(0, [7, 0, 0, 0]), (3, [0, 0, 0, 7]), (-1, [0, 0, 0, 7]), (-4, [7, 0, 0, 0])],
)
def test_an_item_is_stored_at_its_place(place: int, expected: list[int]) -> None:
    assert _stored([0], ONE, [place]) == (expected, False)


@pytest.mark.parametrize("place", [4, -5])
def test_an_item_out_of_range_fails(place: int) -> None:
    assert _stored([0], ONE, [place])[1]


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize(("first", "end"), [(0, 4), (1, 3), (3, 1), (-3, -1), (-9, 9), (2, 2)])
def test_a_slice_is_clamped_as_by_python(first: int, end: int, step: int) -> None:
    expected = torch.zeros(4, dtype=torch.int64)
    expected[first:end:step] = 7
    assert _stored([slice(0, 1, step)], ONE, [first, end]) == (expected.tolist(), False)


@pytest.mark.parametrize("key", [slice(None, 0), slice(0, None)])
def test_bounds_may_be_left_out(key: slice) -> None:
    expected = [7, 7, 0, 0] if key.start is None else [0, 0, 7, 7]
    assert _stored([key], ONE, [2]) == (expected, False)


@pytest.mark.parametrize(
    ("bounds", "step", "expected", "fails"),
    [
        ([1, 3], 1, [0, 8, 9, 0], False),
        ([0, 3], 2, [8, 0, 9, 0], False),
        ([0, 4], 3, [8, 0, 0, 9], False),
        ([0, 3], 1, None, True),
        ([1, 1], 1, None, True),
    ],
)
def test_a_value_for_each_place(bounds: Any, step: int, expected: Any, fails: bool) -> None:
    found = _stored([slice(0, 1, step)], torch.tensor([8, 9]), bounds)
    assert found[1] is fails and (fails or found[0] == expected)


def test_an_empty_value_fits_an_empty_slice_alone() -> None:
    empty = torch.ones(0, dtype=torch.int64)
    assert _stored([slice(0, 1)], empty, [2, 1]) == ([0] * 4, False)
    assert _stored([slice(0, 1)], empty, [0, 1])[1]


def test_an_item_and_a_slice_together() -> None:
    found = _stored([0, slice(1, None)], torch.tensor([8, 9]), [1, 1], sizes=(2, 3))
    assert found == ([[0, 0, 0], [0, 8, 9]], False)


def test_a_known_dimension_is_stored_whole() -> None:
    found = _stored([None, 0], torch.tensor([8, 9]), [2], sizes=(2, 3))
    assert found == ([[0, 0, 8], [0, 0, 9]], False)


@pytest.mark.parametrize(
    ("args", "bounds"), [((5,), (0, 5)), ((2, 5), (2, 5)), ((1, 5, 2), None), ((5.0,), None)]
)
def test_numbers_of_a_range(args: Any, bounds: Any) -> None:
    def body(tx: Any, x: Any) -> Any:
        function = compat.VariableTracker.build(tx, torch.arange)
        value = function.call_function(tx, list(map(constant, args)), {})
        found = masked_writes.numbers_of_range(tx, value)
        return found and tuple(each.as_python_constant() for each in found)

    assert during_trace(body, ONE) == bounds


def test_what_is_no_range_has_no_numbers() -> None:
    assert during_trace(masked_writes.numbers_of_range, torch.arange(3)) is None
