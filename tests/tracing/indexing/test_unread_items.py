"""Items that nobody reads: what may be out of range stays in the graph, all else does not."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor
from torch.fx import Graph

from bcmend.tracing.indexing import unread_items
from tests.equivalence import Call, assert_equivalent, call


def _before_a_branch(x: Tensor, places: Tensor) -> Tensor:
    x[places]
    if x.sum() > 0:
        x = x + 1
    return x


def _in_an_arm(x: Tensor, places: Tensor) -> Tensor:
    if x.sum() > 0:
        x[None, places]
        x = x + 1
    return x


def _by_itself(x: Tensor, places: Tensor) -> Tensor:
    if x.sum() > 0:
        places[places]
    return x


def _in_the_arms_of_an_arm(x: Tensor, places: Tensor) -> Tensor:
    if x.sum() > 0:
        if x[0, 0] > 1:
            x[0, places]
        else:
            x = x * 2
    return x


def _inputs() -> Sequence[Call]:
    x = torch.tensor([[2.0, 1.0], [-1.0, 3.0]])
    places = torch.tensor([0, 1]), torch.tensor([0, 7]), torch.tensor([-3, 1])
    return [call(each.clone(), at) for each in (x, -x, x / 4) for at in places]


@pytest.mark.parametrize(
    "program", [_before_a_branch, _in_an_arm, _by_itself, _in_the_arms_of_an_arm]
)
@pytest.mark.parametrize("training", [False, True])
def test_what_is_not_there_raises(program: Callable[..., Tensor], training: bool) -> None:
    assert_equivalent(lambda: program, _inputs, training=training, may_copy=True)


@pytest.mark.parametrize(
    ("dtype", "is_read", "target"),
    [
        (torch.int64, False, "__getitem__"),
        (torch.int32, False, "__getitem__"),
        (torch.int64, True, operator.getitem),
        (torch.bool, False, operator.getitem),
    ],
)
def test_what_dynamo_would_remove(dtype: torch.dtype, is_read: bool, target: object) -> None:
    graph = Graph()
    tensor, places = graph.placeholder("tensor"), graph.placeholder("places")
    places.meta["example_value"] = torch.zeros(2, dtype=dtype)
    item = graph.call_function(operator.getitem, (tensor, (slice(None), places)))
    unread_items.keep_unread(graph, [item] if is_read else [])
    assert item.target == target
    graph.lint()
