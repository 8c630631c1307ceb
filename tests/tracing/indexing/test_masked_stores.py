"""Stores to data-dependent parts: what is stored where, and what fails, as in eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from bcmend.dynamo import compat
from bcmend.dynamo.handlers import PASS
from bcmend.dynamo.handlers import Call as HandlerCall
from bcmend.dynamo.values import constant
from bcmend.tracing.indexing import masked_stores
from bcmend.tracing.indexing.index_parts import Item, Part, Slice
from bcmend.tracing.numbers import scalars
from bcmend.tracing.sites.refusal import NotThisWay, attempt
from corpus.patterns.dynamic.places import PATTERNS
from corpus.patterns.pattern import Pattern, run, wrong_with
from tests.equivalence import Call, Comparison, assert_equivalent, call, compare
from tests.tracing.in_trace import during_trace, trace

Program = Callable[..., Any]


pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda each: each.name)
def test_one_graph_without_being_asked_for(pattern: Pattern) -> None:
    assert wrong_with(pattern, run(pattern, fullgraph=False), training=False) == []


def _calls(x: Tensor, numbers: Sequence[tuple[int, ...]]) -> Callable[[], list[Call]]:
    return lambda: [call(x.clone(), *map(torch.tensor, each)) for each in numbers]


def _step_of(step: int) -> Program:
    def program(x: Tensor, first: Tensor, last: Tensor) -> Tensor:
        y = x * 2
        if first > -100:
            y[first:last:step] = -1
            y[: first : step + 1] = -2
        return y

    return program


@pytest.mark.parametrize("step", [1, 2, 3])
def test_bounds_are_clamped_as_in_python(step: int) -> None:
    pairs = list(product(range(-6, 7), repeat=2))
    assert_equivalent(lambda: _step_of(step), _calls(torch.arange(4.0), pairs))


def _of_length(count: int) -> Program:
    def program(x: Tensor, first: Tensor, last: Tensor) -> Tensor:
        y = x * 2
        if x.sum() > 0:
            y[first:last] = torch.arange(10.0, 10.0 + count)
        return y

    return program


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_a_value_has_to_have_the_length_of_the_slice(count: int) -> None:
    pairs = list(product(range(-5, 6, 2), range(5)))
    assert_equivalent(lambda: _of_length(count), _calls(torch.arange(4.0), pairs))


def _numbers(x: Tensor, first: Tensor, last: Tensor, begin: Tensor, end: Tensor) -> Tensor:
    y = x * 2
    places = torch.nonzero(x > 0)
    for turn in range(len(places)):
        y[first + turn : last + turn] = torch.arange(begin, end)
    return y


def test_numbers_of_a_range_have_to_fit_too() -> None:
    numbers = list(product((0, 2), (1, 3), (0, 4), (3, 5, 6)))
    calls = _calls(torch.arange(6.0) - 3, numbers)
    _compared(_numbers, calls)


def _numbers_that_are_read(x: Tensor, count: Tensor) -> Tensor:
    y = x * 2
    places = torch.nonzero(x > 0)
    for turn in range(len(places)):
        numbers = torch.arange(count)
        y[turn : count + turn] = numbers
        y = y + numbers.sum()
    return y


def test_numbers_of_a_range_that_are_read_elsewhere() -> None:
    calls = _calls(torch.arange(6.0) - 3, [(2,), (0,), (1,), (3,)])
    _compared(_numbers_that_are_read, calls, fullgraph=False)


def _compared(program: Program, calls: Callable[[], list[Call]], **options: Any) -> Comparison:
    found = compare(lambda: program, calls, **options)
    assert (found.eager_differences, found.differences) == ((), ())
    return found


def _item(x: Tensor, row: Tensor, column: Tensor) -> Tensor:
    y = x * 2
    if row < 3:
        y[row, None, column] = 5
        y[row] += 0
    return y


def test_an_index_out_of_range_is_an_error_where_it_is_used() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    _compared(_item, _calls(x, [(0, 1), (-2, -3), (1, 3), (5, 9), (2, 0), (-3, 0)]))


def _turns(x: Tensor, limit: Tensor) -> tuple[Tensor, Tensor]:
    y, turn = x * 0, limit * 0
    while turn < limit:
        y[turn] = turn
        turn = turn + 1
    return y, turn


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_turn_that_fails_ends_the_loop(backend: str) -> None:
    calls = _calls(torch.arange(3.0), [(2,), (0,), (3,), (4,), (9,)])
    assert_equivalent(lambda: _turns, calls, backend=backend)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.float16, torch.bool])
@pytest.mark.parametrize("number", [True, -1, 2.7, 300, float("nan")])
def test_a_number_becomes_what_the_tensor_holds(dtype: torch.dtype, number: Any) -> None:
    def program(x: Tensor, first: Tensor) -> Tensor:
        y = x.to(dtype)
        if first < 3:
            y[first:] = number
        return y

    _compared(program, _calls(torch.arange(4.0), [(1,), (3,), (0,)]), fullgraph=False)


def _own_memory(x: Tensor, first: Tensor) -> Tensor:
    y = x * 2
    if first < 3:
        y[first:] = y[0]
    return y


def _overlapping(x: Tensor, first: Tensor) -> Tensor:
    y = (x[:1] * 2).expand(4)
    if first < 3:
        y[first:] = 1
    return y


def _mask_beside(x: Tensor, first: Tensor) -> Tensor:
    y = x[:, None] * torch.ones(3)
    if first < 3:
        y[x > 1, first:] = 1
    return y


@pytest.mark.parametrize("program", [_own_memory, _overlapping, _mask_beside])
def test_other_stores_are_left_alone(program: Program) -> None:
    _compared(program, _calls(torch.arange(4.0), [(1,), (3,), (0,)]), fullgraph=False)


def _unrepeatable(x: Tensor, first: Tensor) -> Tensor:
    x.add_(1)  # of more bytes than are put back
    y = x[:4] * 2
    if first < 100:
        y[first] = 1
    return y


def test_where_the_call_cannot_be_made_again_an_index_is_not_trusted() -> None:
    calls = _calls(torch.zeros(2**20), [(1,), (3,), (0,), (100,)])
    _compared(_unrepeatable, calls, fullgraph=False)


def test_a_value_with_a_gradient_for_many_places_is_left_alone() -> None:
    def program(x: Tensor, first: Tensor) -> Tensor:
        y = x * 2
        if first < 3:
            y[first:] = x.sum()
        return y

    calls = _calls(torch.arange(4.0), [(1,), (3,), (0,)])
    _compared(program, calls, fullgraph=False, training=True, backend="aot_eager")


def _of_its_own_rows(x: Tensor, first: Tensor, last: Tensor) -> Tensor:
    y = x * 1
    y[first.item() : last.item()] = x[first.item() : last.item()] * 2
    return y


def test_a_value_of_no_rows() -> None:
    """Where graphs could break, the call is not made again once an operation of one has failed."""
    inputs = _calls(torch.arange(24.0).reshape(6, 4), [(1, 3), (2, 2), (4, 2), (0, 6)])
    for fullgraph in (False, True):
        assert_equivalent(
            lambda: _of_its_own_rows,
            inputs,
            fullgraph=fullgraph,
            training=True,
            graphs=None,
            recompiles=None,
        )


# Called directly

FLOATS = torch.zeros(4)


@pytest.mark.parametrize(
    ("dtype", "number", "fits"),
    [
        (torch.float32, 1, True),
        (torch.float32, 1j, False),
        (torch.int8, 300, False),
        (torch.bool, 2.5, True),
        (torch.complex64, 1j, True),
        (torch.float32, "1", False),
        (torch.float32, None, False),
    ],
)
def test_constants_that_a_tensor_can_be_filled_with(dtype: Any, number: Any, fits: bool) -> None:
    assert masked_stores._can_be_filled_with(dtype, constant(number)) is fits


@pytest.mark.parametrize(
    ("target", "value", "is_storable"),
    [
        (FLOATS, torch.ones(2), True),
        (FLOATS, torch.ones(2, dtype=torch.complex64), False),
        (torch.ones(1).expand(4), torch.ones(2), False),
        (torch.ones(4, requires_grad=True), torch.ones(2), False),
        (torch.ones(masked_stores._ELEMENTS_AT_MOST + 1), torch.ones(2), False),
    ],
    ids=["plain", "complex", "overlapping", "leaf", "large"],
)
def test_tensors_that_can_be_stored(target: Tensor, value: Tensor, is_storable: bool) -> None:
    assert during_trace(masked_stores._is_storable, target, value) is is_storable


def test_a_tensor_is_not_stored_to_its_own_memory() -> None:
    assert during_trace(lambda tx, x: masked_stores._is_storable(tx, x, x), FLOATS) is False


@pytest.mark.parametrize(("dtype", "fits"), [(torch.int64, True), (torch.int8, False)])
def test_an_integer_of_64_bits_needs_room(dtype: torch.dtype, fits: bool) -> None:
    def body(tx: Any, x: Any, place: Any) -> Any:
        return masked_stores._is_storable(tx, x, scalars.take(tx, place))

    assert during_trace(body, FLOATS.to(dtype), torch.tensor(3)) is fits


def _needed(axes: Any, form: Any) -> Any:
    def body(tx: Any, value: Any) -> Any:
        part = Part(compat.TupleVariable([]), axes)
        found = attempt(lambda: masked_stores._needs_exit(tx, part, form, value))
        return "another way" if isinstance(found, NotThisWay) else found

    return body


ITEM: Any = Item(constant(0))
SLICE: Any = Slice(None, constant(0), 1)


@pytest.mark.parametrize(
    ("axes", "shape", "expected"),
    [
        ((SLICE,), (), False),
        ((SLICE,), (1,), False),
        ((SLICE,), (2,), True),
        ((ITEM,), (), True),
        ((SLICE, None), (4,), False),
        ((SLICE, None), (3,), "another way"),
        ((SLICE,), (2, 2), "another way"),
        ((SLICE,), (1, 2), True),
    ],
)
def test_a_side_exit_is_needed_where_a_store_may_fail(axes: Any, shape: Any, expected: Any) -> None:
    assert during_trace(_needed(axes, (4,) * len(axes)), torch.ones(shape)) == expected


def test_a_gradient_that_is_summed_over_places_is_refused() -> None:
    value = torch.ones(1, requires_grad=True)
    assert during_trace(_needed((SLICE,), (4,)), value) == "another way"


def _set(tx: Any, x: Any, key: Any, *more: Any) -> Any:
    return masked_stores._set_item(HandlerCall(tx, "__setitem__", x, (key, *more), {}))


def test_the_handler_stores_at_a_data_dependent_place() -> None:
    def body(tx: Any, x: Any, place: Any) -> Any:
        stored = x.call_method(tx, "clone", [], {})
        assert _set(tx, stored, place, constant(5.0)).as_python_constant() is None
        return stored

    assert trace(body, FLOATS, torch.tensor(2)).tolist() == [0, 0, 5, 0]


def test_the_handler_passes_on_other_stores() -> None:
    def body(tx: Any, x: Any, place: Any) -> Any:
        keys = constant(1), place
        return [
            _set(tx, x, constant(1), constant(5.0)),
            _set(tx, x, place, constant("a")),
            _set(tx, x, keys[0]),
        ]

    assert during_trace(body, FLOATS, torch.tensor(2)) == [PASS] * 3


def test_the_handler_passes_on_stores_of_code_that_is_not_mended() -> None:
    def body(tx: Any, x: Any, place: Any) -> Any:
        return _set(tx, x, place, constant(5.0))

    assert during_trace(body, FLOATS, torch.tensor(2), is_mended=False) is PASS


def _out_of_bounds(x: Tensor) -> Tensor:
    y = torch.zeros(2, 3, 3)
    y[2, 2, : (x > 0).sum()] = x > 0
    return y


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_a_known_place_out_of_bounds_fails_as_in_eager(backend: str) -> None:
    calls = lambda: [call(torch.tensor([-1.0, -2.0, 0.5]))]  # noqa: E731
    assert_equivalent(lambda: _out_of_bounds, calls, backend=backend, fullgraph=False, graphs=None)
