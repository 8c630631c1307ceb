"""Of which tensors it is known that they hold numbers below a bound, each once, in order."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from torch.fx import Graph, Node

from bcmend.tracing.loops.index_sets import _bound_of, index_set
from tests.tracing.plain_trace import traced

COLUMN = (slice(None, None, None), 0)
NUMBERS = torch.tensor([0, 2])


def _noted(node: Node, example: Any) -> Node:
    node.meta["example_value"] = example
    return node


def _mask(example: Any) -> Node:
    return _noted(Graph().placeholder("mask"), example)


VECTOR = torch.tensor([True, False, True, False])


def _nonzero(mask: Any = VECTOR) -> Node:
    node = _mask(mask)
    return _noted(node.graph.call_function(torch.nonzero, (node,)), NUMBERS[:, None])


def _as_tuple(function: Any, *more: Any, **named: Any) -> Node:
    node = _mask(VECTOR)
    return _noted(node.graph.call_function(function, (node, *more), named), (NUMBERS,))


def _item(node: Node, index: Any, example: Any = NUMBERS) -> Node:
    return _noted(node.graph.call_function(operator.getitem, (node, index)), example)


def _method(node: Node, name: str, *arguments: Any, example: Any = NUMBERS) -> Node:
    return _noted(node.graph.call_method(name, (node, *arguments)), example)


@pytest.mark.parametrize(
    "node",
    [
        _nonzero(),
        _item(_nonzero(), COLUMN),
        _method(_nonzero(), "flatten"),
        _method(_nonzero(), "squeeze", -1),
        _method(_method(_nonzero(), "cpu"), "long"),
        _item(_as_tuple(torch.where), 0),
        _item(_as_tuple(torch.nonzero, as_tuple=True), 0),
    ],
)
def test_the_bound_is_the_length_of_the_mask(node: Node) -> None:
    assert _bound_of(node) == 4


@pytest.mark.parametrize(
    "node",
    [
        _mask(NUMBERS),
        _nonzero(torch.ones(2, 2)),
        _method(_nonzero(), "add", 1),
        _method(_nonzero(), "squeeze"),
        _method(_nonzero(), "to", torch.int8, example=NUMBERS.to(torch.int8)),
        _item(_nonzero(), 0),
        _item(_as_tuple(torch.where, 1, 2), 0),
        _item(_as_tuple(torch.where), 1),
        None,
    ],
)
def test_of_anything_else_no_bound_is_known(node: Any) -> None:
    assert _bound_of(node) is None


def test_a_long_chain_of_operations_is_not_followed_to_its_end() -> None:
    node = _nonzero()
    for _ in range(20):
        node = _method(node, "contiguous")
    assert _bound_of(node) is None


def test_for_each_number_below_the_bound_it_is_known_whether_it_is_there() -> None:
    def step(tx: Any, mask: Any) -> Any:
        numbers = mask.call_method(tx, "nonzero", [], {})
        found = index_set(tx, numbers)
        assert found is not None and found.bound == 3
        assert index_set(tx, mask) is None
        return found.is_there

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        found = traced(step, torch.tensor([True, False, True]))
    for mask in ([True, False, True], [False] * 3, [False, True, False]):
        assert found.run(torch.tensor(mask))[0].tolist() == mask
