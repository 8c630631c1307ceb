"""``torch.tensor(array)`` and ``torch.Tensor(array)``; classes of tensors, called with lists."""

from __future__ import annotations

import itertools
from typing import Any

import numpy
import pytest
import torch

from bcmend.dynamo.handlers import PASS
from bcmend.dynamo.values import constant
from bcmend.tracing.substitutes.arrays import _tensor
from tests.equivalence import assert_equivalent, call
from tests.tracing.in_trace import during_trace, substituted, trace

ARRAY = numpy.array([1.0, 2.0])


def _made(tx: Any, array: Any, *more: Any, **named: Any) -> Any:
    return _tensor(substituted(tx, torch.tensor, array, *more, **named))


@pytest.mark.parametrize("dtype", [None, torch.float64, torch.int64])
def test_an_array_becomes_a_tensor_of_its_own_memory(dtype: Any) -> None:
    array = ARRAY.copy()
    found = trace(lambda tx, x: _made(tx, x, dtype=constant(dtype)), array)
    assert torch.equal(found, torch.tensor(array, dtype=dtype)) and found.dtype is (
        dtype or torch.float64
    )
    array[0] = 7
    assert found[0] == 1


@pytest.mark.parametrize("named", [{"requires_grad": constant(True)}, {"pin_memory": constant(1)}])
def test_other_arguments_are_passed_on(named: dict[str, Any]) -> None:
    assert during_trace(lambda tx, x: _made(tx, x, **named), ARRAY) is PASS


def test_what_is_no_array_is_passed_on() -> None:
    assert during_trace(lambda tx, x: _made(tx, x), torch.ones(2)) is PASS
    assert during_trace(lambda tx, x: _made(tx, x, constant(1)), ARRAY) is PASS


def _with_a_default_tensor(x: torch.Tensor) -> torch.Tensor:
    basis = numpy.zeros((3,))
    basis[1] = 1.5
    found = torch.Tensor(basis)
    basis[1] = 7
    return found + (x if x.sum() > 0 else -x)


def test_a_tensor_of_the_default_type() -> None:
    vectors = ([1.0, 2.0, 3.0], [-1.0, -2.0, -3.0])
    assert_equivalent(
        lambda: _with_a_default_tensor, lambda: [call(torch.tensor(each)) for each in vectors]
    )


def _of_classes(x: torch.Tensor, counts: torch.Tensor) -> Any:
    longs = [max(int(each), 0) for each in counts]
    floats = [each.item() for each in x]
    return (
        torch.LongTensor(longs),
        torch.LongTensor([longs[:2], longs[1:]]),
        torch.IntTensor((longs[0], 3)),
        torch.LongTensor([bool(x[0] > x[1]), longs[0]]),
        torch.FloatTensor([*longs, *floats]),
        torch.DoubleTensor([floats, floats]),
        torch.Tensor(floats),
        torch.Tensor([longs[0], 1]),
    )


def test_tensors_of_numbers_out_of_tensors() -> None:
    """One graph for all numbers: none of them is fixed."""
    vectors = ([1.0, 2.5, 3.0], [-1.0, -2.0, -3.5])
    counts = ([2.0, 0.0, -1.0], [5.0, 3.0, 7.0])
    given = [
        call(torch.tensor(vector), torch.tensor(count))
        for vector, count in itertools.product(vectors, counts)
    ]
    assert_equivalent(lambda: _of_classes, lambda: given, graphs=1)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: torch.LongTensor([1, 2, 3]) * x.long(),
        lambda x: torch.LongTensor(3).shape,
        lambda x: torch.FloatTensor([[1.5], [2.5]]) + x,
        lambda x: torch.Tensor(2, 3).shape,
    ],
)
def test_classes_called_with_what_is_known(program: Any) -> None:
    assert_equivalent(lambda: program, lambda: [call(torch.tensor([1.0, 2.0, 3.0]))])


def _range_up_to_a_size(x: torch.Tensor) -> Any:
    chosen = (x > 0).nonzero()[:, 0]
    places = torch.tensor(range(chosen.size(0)), dtype=torch.long, device=x.device)
    return places * 2, chosen[places]


def _range_up_to_another_size(x: torch.Tensor) -> Any:
    return torch.tensor(range(len(x[x > 1])), dtype=torch.int64, device="cpu") + 1


@pytest.mark.parametrize("program", [_range_up_to_a_size, _range_up_to_another_size])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_tensor_of_a_range_that_the_data_end(program: Any, backend: str) -> None:
    vectors = ([1.0, 2.0, 3.0], [-1.0, -2.0, 3.0], [-1.0, -1.0, -1.0])
    assert_equivalent(
        lambda: program, lambda: [call(torch.tensor(each)) for each in vectors], backend=backend
    )


def _of_the_type_of_its_numbers(x: torch.Tensor) -> Any:
    return torch.tensor(range((x > 0).nonzero().size(0)))


def _of_fractions(x: torch.Tensor) -> Any:
    return torch.tensor(range((x > 0).nonzero().size(0)), dtype=torch.float64)


def _up_to_a_number(x: torch.Tensor) -> Any:
    return torch.tensor(range(int((x > 1).sum())), dtype=torch.int64) + 1


def _from_elsewhere(x: torch.Tensor) -> Any:
    return torch.tensor(range(1, int((x > 0).sum()) - 2), dtype=torch.int64)


@pytest.mark.parametrize(
    "program", [_of_the_type_of_its_numbers, _of_fractions, _up_to_a_number, _from_elsewhere]
)
def test_other_ranges_are_had_in_front_of_the_graph(program: Any) -> None:
    vectors = ([1.0, 2.0, 3.0, 4.0], [-1.0, -2.0, 3.0, 1.0], [-1.0, -1.0, -1.0, -1.0])
    assert_equivalent(
        lambda: program,
        lambda: [call(torch.tensor(each)) for each in vectors],
        graphs=None,
        recompiles=None,
    )
