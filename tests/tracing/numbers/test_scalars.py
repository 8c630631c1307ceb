"""Numbers taken out of tensors: the tensors beside them, and what is computed from these."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch

from bcmend.dynamo import compat, fx_graph
from bcmend.dynamo.values import constant, example_of
from bcmend.tracing.numbers import float_tensors, scalars
from tests.tracing.plain_trace import traced

INTEGER, FLOAT = torch.tensor(3), torch.tensor(0.1)


def _computed(tx: Any, x: Any, factor: Any = 1) -> Any:
    """Return a tensor whose number Dynamo does not know by its source."""
    return fx_graph.function(tx, torch.mul, x, factor)


def _taken(tx: Any, x: Any) -> Any:
    number = scalars.take(tx, _computed(tx, x))
    assert isinstance(number, compat.SymNodeVariable)
    return number


def _apply(tx: Any, function: Any, *arguments: Any) -> Any:
    """Call a function of numbers in the graph."""
    proxies = tuple(each.as_proxy() if hasattr(each, "as_proxy") else each for each in arguments)
    return compat.wrap_fx_proxy(tx, tx.output.create_proxy("call_function", function, proxies, {}))


@pytest.mark.parametrize(
    ("tensor", "dtype"),
    [
        (torch.tensor(3, dtype=torch.int8), torch.int64),
        (torch.tensor([[0.5]], dtype=torch.float16), torch.float64),
        (torch.tensor(True), torch.bool),
    ],
)
def test_a_number_has_a_tensor_of_its_value_beside_it(
    tensor: torch.Tensor, dtype: torch.dtype
) -> None:
    def step(tx: Any, x: Any) -> Any:
        number = scalars.take(tx, fx_graph.method(tx, "clone", x))
        assert isinstance(number, compat.SymNodeVariable) and scalars.is_taken(tx, number)
        beside = scalars.tensor_behind(tx, number.as_proxy())
        assert beside is not None
        assert example_of(beside).shape == () and example_of(beside).dtype is dtype
        return fx_graph.function(tx, torch.add, beside, 0)

    assert traced(step, tensor).result.item() == tensor.item()


def test_the_tensor_beside_a_number_has_no_later_change() -> None:
    def step(tx: Any, x: Any) -> Any:
        source = _computed(tx, x)
        number = scalars.take(tx, source)
        assert isinstance(number, compat.SymNodeVariable)
        fx_graph.method(tx, "add_", source, 10)
        return fx_graph.function(tx, torch.add, scalars.tensor_behind(tx, number.as_proxy()), 0)

    assert traced(step, INTEGER).result.item() == 3


def test_no_number_is_taken_out_of_several_and_a_known_one_is_constant() -> None:
    def step(tx: Any, x: Any) -> Any:
        assert scalars.take(tx, x) is None
        known = scalars.take(tx, fx_graph.function(tx, torch.full, (1,), 7))
        assert known is not None and known.as_python_constant() == 7
        return x

    traced(step, torch.ones(2))


@pytest.mark.parametrize(
    ("tensor", "comparison", "other"),
    [
        (INTEGER, operator.gt, 2),
        (INTEGER, operator.gt, 2.5),
        (INTEGER, operator.ge, 3.5),
        (INTEGER, operator.lt, 3.5),
        (INTEGER, operator.le, 2.5),
        (INTEGER, operator.eq, 3),
        (FLOAT, operator.eq, 0.1),
        (FLOAT, operator.lt, 0.1),
    ],
)
def test_the_truth_of_a_comparison_is_that_of_python(
    tensor: torch.Tensor, comparison: Any, other: Any
) -> None:
    def step(tx: Any, x: Any) -> Any:
        truth = _apply(tx, comparison, _taken(tx, x), other)
        contrary = _apply(tx, torch.sym_not, truth)
        assert scalars.has_tensor(tx, truth) and scalars.has_tensor(tx, contrary)
        found = [scalars.tensor_of(tx, each) for each in (truth, contrary)]
        return compat.TupleVariable(found)

    truth, contrary = traced(step, tensor).result
    expected = comparison(tensor.item(), other)
    assert (truth.item(), contrary.item()) == (expected, not expected)


@pytest.mark.parametrize(("comparison", "other"), [(operator.eq, 2.5), (operator.gt, 2**60)])
def test_a_comparison_that_a_tensor_would_round_has_no_tensor(comparison: Any, other: Any) -> None:
    def step(tx: Any, x: Any) -> Any:
        truth = _apply(tx, comparison, _taken(tx, x), other)
        assert not scalars.has_tensor(tx, truth)
        assert scalars.tensor_of(tx, truth) is None
        return x

    traced(step, INTEGER)


@pytest.mark.parametrize(
    ("function", "swapped", "expected"),
    [
        (operator.add, False, 5),
        (operator.add, True, 5),
        (operator.iadd, False, 5),
        (operator.sub, False, 1),
        (operator.isub, False, 1),
        (operator.sub, True, None),
        (operator.mul, False, None),
    ],
)
def test_a_number_plus_constants_is_counted_by_its_tensor(
    function: Any, swapped: bool, expected: int | None
) -> None:
    def step(tx: Any, x: Any) -> Any:
        number = _taken(tx, x)
        found = scalars.tensor_of_count(
            tx, _apply(tx, function, *((2, number) if swapped else (number, 2)))
        )
        assert (found is not None) is (expected is not None)
        return x if found is None else found

    result = traced(step, INTEGER).result
    assert expected is None or result.item() == expected


def test_integers_as_tensors() -> None:
    def step(tx: Any, x: Any) -> Any:
        number = _taken(tx, x)
        product = _apply(tx, operator.mul, number, 2)
        given = (constant(7), number, product)
        return compat.TupleVariable([scalars.integer_tensor(tx, each) for each in given])

    assert [each.item() for each in traced(step, INTEGER).result] == [7, 3, 6]


def test_a_number_that_an_arm_leaves_has_its_tensor_held() -> None:
    def step(tx: Any, x: Any) -> Any:
        number = _taken(tx, x)
        doubled = _apply(tx, operator.mul, number, 2.0)
        assert scalars.tensor_behind(tx, doubled.as_proxy()) is None
        scalars.carry_out(tx, [doubled, number], float_tensors.as_tensor)
        held = [scalars.tensor_behind(tx, each.as_proxy()) for each in (doubled, number)]
        return compat.TupleVariable(held)

    doubled, number = traced(step, FLOAT).result
    assert doubled.item() == FLOAT.item() * 2.0 and number.item() == FLOAT.item()
