"""Stores to parts that only the data tell: what is stored where, and what fails, as in eager."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from corpus.patterns.masked_stores import PATTERNS
from corpus.patterns.pattern import Pattern, run, wrong_with
from tests.equivalence import Call, Comparison, assert_equivalent, call, compare

Program = Callable[..., Any]


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    bcmend.unpatch()
    torch._dynamo.reset()


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
