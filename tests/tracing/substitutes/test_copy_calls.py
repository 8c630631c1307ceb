"""``copy.copy`` and ``copy.deepcopy``, called directly."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bcmend.dynamo import compat
from bcmend.dynamo.handlers import PASS
from bcmend.dynamo.values import constant
from bcmend.tracing.sites.refusal import Refusal
from bcmend.tracing.substitutes import copy_calls
from tests.tracing.in_trace import during_trace, substituted, trace

X = torch.tensor([1.0, 2.0])


def _deep(tx: Any, *values: Any) -> Any:
    return copy_calls._deepcopy(substituted(tx, "copy.deepcopy", *values))


def _flat(tx: Any, *values: Any) -> Any:
    return copy_calls._copy(substituted(tx, "copy.copy", *values))


def test_a_deep_copy_of_a_tensor_has_a_memory_of_its_own() -> None:
    found = trace(_deep, X)
    assert torch.equal(found, X) and found.data_ptr() != X.data_ptr()


def test_a_flat_copy_of_a_tensor_shares_its_memory() -> None:
    found = trace(_flat, X)
    assert found is not X and found.data_ptr() == X.data_ptr()


def test_one_tensor_in_two_places_is_one_copy() -> None:
    def body(tx: Any, x: Any) -> Any:
        return _deep(tx, compat.TupleVariable([x, compat.ListVariable([x])]))

    found, (same,) = trace(body, X)
    assert found is same and found is not X


def test_a_tuple_of_constants_is_the_same_object() -> None:
    def body(tx: Any, x: Any) -> Any:
        given = compat.TupleVariable([constant(1), constant("a")])
        return _deep(tx, given) is given, _deep(tx, compat.ListVariable(given.items)) is given

    assert during_trace(body, X) == (True, False)


@pytest.mark.parametrize("answer", [_deep, _flat])
def test_other_objects_and_arguments_are_passed_on(answer: Any) -> None:
    def body(tx: Any, x: Any) -> Any:
        function = compat.VariableTracker.build(tx, len)
        return [answer(tx, function), answer(tx, x, constant(None)), answer(tx)]

    assert during_trace(body, X) == [PASS] * 3


def _overlapping() -> torch.Tensor:
    return torch.ones(1).expand(3)


@pytest.mark.parametrize(
    ("tensor", "answers", "detail"),
    [
        (X.clone().requires_grad_(), [_deep, _flat], "requires gradients"),
        (torch.nn.Parameter(X, requires_grad=False), [_deep, _flat], "a parameter"),
        (torch.ones(4)[:2], [_deep], "more than its elements"),
        (_overlapping(), [_deep], "some of them twice"),
    ],
    ids=["gradients", "parameter", "part", "overlapping"],
)
def test_tensors_of_which_no_copy_is_equal(tensor: Any, answers: Any, detail: str) -> None:
    def body(tx: Any, x: Any) -> None:
        for answer in answers:
            with pytest.raises(Refusal, match=detail) as caught:
                answer(tx, x)
            assert caught.value.slug == "no-equal-substitute"

    during_trace(body, tensor)


def test_two_tensors_of_one_memory_are_refused() -> None:
    def body(tx: Any, x: Any) -> None:
        view = x.call_method(tx, "view", [constant(-1)], {})
        with pytest.raises(Refusal, match="the same memory"):
            _deep(tx, compat.ListVariable([x, view]))

    during_trace(body, X)


def test_a_list_is_copied_with_its_items_or_without() -> None:
    def body(tx: Any, x: Any) -> Any:
        given = compat.ListVariable([x], mutation_type=compat.ValueMutationNew())
        return compat.TupleVariable([given, _flat(tx, given), _deep(tx, given), x])

    given, flat, deep, tensor = trace(body, X)
    assert flat is not given and flat[0] is tensor
    assert deep[0] is not tensor and torch.equal(deep[0], tensor)
