"""What an iteration changes, and what is carried as what."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.fx import Graph, Proxy

from bcmend.dynamo import compat
from bcmend.dynamo.values import constant
from bcmend.tracing.loops.loop_values import (
    Carried,
    MoreChanges,
    carried_values,
    exhausted,
    what_changes,
)
from bcmend.tracing.loops.open_ranges import OpenIterator, is_number, number_in, with_number
from bcmend.tracing.sites.refusal import Refusal


def _tensor(example: torch.Tensor) -> Any:
    node = Graph().placeholder("x")
    node.meta["example_value"] = example
    return compat.TensorVariable(
        Proxy(node),
        dtype=example.dtype,
        device=example.device,
        layout=example.layout,
        ndim=example.dim(),
        requires_grad=example.requires_grad,
        has_grad_fn=False,
        is_nested=False,
        is_quantized=False,
        is_sparse=False,
        class_type=torch.Tensor,
    )


def _range() -> Any:
    return compat.RangeIteratorVariable(0, 9, 1, 9)


def test_a_live_in_is_carried_by_its_kind() -> None:
    over = _range()
    before = [constant(1), _tensor(torch.ones(2)), constant("a"), over, constant(5)]
    after = [constant(2), _tensor(torch.ones(2)), constant("a"), over, constant(5)]
    assert what_changes(before, after, gradients=True) == Carried((1,), (0,), (3,), True)


def test_fractions_are_carried_as_integers_are() -> None:
    nan = float("nan")
    before = [constant(float("inf")), constant(0.5), constant(nan), constant(0.0)]
    after = [constant(1.0), constant(0.5), constant(nan), constant(-0.0)]
    assert what_changes(before, after, gradients=False) == Carried((), (0, 3), (), False)
    after[2] = constant(float("nan"))  # another one, and not equal
    assert what_changes(before, after, gradients=False) == Carried((), (0, 2, 3), (), False)


def test_a_tensor_that_is_the_same_by_another_name_is_not_carried() -> None:
    example = torch.ones(2)
    found = what_changes([_tensor(example)], [_tensor(example)], gradients=False)
    assert found == Carried((), (), (), False)


@pytest.mark.parametrize(
    ("one", "other", "detail"),
    [
        (
            constant("a"),
            constant("b"),
            "a turn changes something that is neither a tensor nor a number",
        ),
        (
            constant(1),
            constant(True),
            "a turn changes something that is neither a tensor nor a number",
        ),
        (
            constant(1),
            constant(1.0),
            "a turn makes a fraction of an integer, or an integer of a fraction",
        ),
        (
            _tensor(torch.ones(2)),
            _tensor(torch.ones(3)),
            "a tensor has another shape, dtype or device after a turn",
        ),
        (
            _tensor(torch.ones(2)),
            constant(1),
            "a turn changes something that is neither a tensor nor a number",
        ),
        (_range(), _range(), "a turn takes items from an iterator"),
    ],
)
def test_what_no_operator_carries_is_refused(one: Any, other: Any, detail: str) -> None:
    with pytest.raises(Refusal, match=detail):
        what_changes([one], [other], gradients=False)


def test_two_ranges_and_other_live_ins_are_refused() -> None:
    ranges = [_range(), _range()]
    with pytest.raises(Refusal, match="a turn goes over two ranges"):
        what_changes(ranges, ranges, gradients=False)
    with pytest.raises(Refusal, match="a turn needs other variables than the turn before"):
        what_changes(ranges, ranges[:1], gradients=False)


def test_an_iteration_that_changes_more_than_the_first_says_so() -> None:
    before = [_tensor(torch.ones(2)), constant(0), constant("a")]
    after = [_tensor(torch.ones(2)), constant(1), constant("a")]
    carried = Carried((0,), (), (), False)
    with pytest.raises(MoreChanges) as more:
        carried_values(after, before, carried)
    assert more.value.carried == Carried((0,), (1,), (), False)
    assert carried_values(after, before, more.value.carried) == after[:2]


def test_a_python_value_that_only_a_later_iteration_changes_is_refused() -> None:
    with pytest.raises(Refusal, match="neither a tensor nor a number"):
        carried_values([constant("b")], [constant("a")], Carried((), (), (), False))


def test_what_is_carried_stays_of_its_kind_and_form() -> None:
    tensor = [_tensor(torch.ones(2))]
    for after, detail in (
        (constant(1), "a turn makes something else of a tensor"),
        (_tensor(torch.ones(2, 2)), "a tensor has another shape, dtype or device after a turn"),
    ):
        with pytest.raises(Refusal, match=detail):
            carried_values([after], tensor, Carried((0,), (), (), False))
    with pytest.raises(Refusal, match="a turn makes something else of a number"):
        carried_values([constant("a")], [constant(1)], Carried((), (0,), (), False))


def test_a_range_that_is_exhausted_gives_no_more_numbers() -> None:
    found: Any = exhausted(_range())
    assert (found.start, found.stop, found.step, found.len) == (0, 9, 1, 0)


def test_an_open_iterator_is_carried_as_the_number_that_it_has_come_to() -> None:
    over: Any = SimpleNamespace(step=1)
    three, four = constant(3), constant(4)
    iterator = OpenIterator(over, three, has_one=True)
    assert number_in(iterator) is three and number_in(four) is four
    moved: Any = with_number(iterator, four)
    assert (moved.goes_over, moved.following, moved.has_one) == (over, four, True)
    assert with_number(three, four) is four
    assert what_changes([iterator], [moved], gradients=False).numbers == (0,)


@pytest.mark.parametrize(
    ("value", "expected"), [(3, True), (True, False), (1.5, False), ("1", False)]
)
def test_only_an_integer_is_a_number(value: object, expected: bool) -> None:
    assert is_number(constant(value)) is expected
