"""Which carried tensors of a loop get a gradient only in a later iteration."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from bcmend.dynamo import fx_graph
from bcmend.tracing.loops.late_gradients import becoming_differentiable, tied
from tests.tracing.plain_trace import traced

FLOAT, INTEGER = torch.ones(2), torch.tensor([1, 2])


class _Iteration:
    """The graph of an iteration with some inputs."""

    def __init__(self, count: int) -> None:
        self.graph = Graph()
        self.inputs = [self.graph.placeholder(f"input_{at}") for at in range(count)]
        for each in self.inputs:
            each.meta["example_value"] = FLOAT

    def call(self, *arguments: Node, target: Any = torch.add, example: Any = FLOAT) -> Node:
        kind = "call_method" if isinstance(target, str) else "call_function"
        node = self.graph.create_node(kind, target, arguments)
        node.meta["example_value"] = example
        return node


def test_a_sum_of_differentiable_values_becomes_differentiable() -> None:
    iteration = _Iteration(2)
    total, weight = iteration.inputs
    after = iteration.call(total, weight)
    assert becoming_differentiable({total: False}, {weight: True}, {total: after}) == {total}
    assert becoming_differentiable({total: False}, {weight: False}, {total: after}) == set()


def test_what_requires_a_gradient_from_the_start_does_not_become_so() -> None:
    iteration = _Iteration(2)
    total, weight = iteration.inputs
    after = iteration.call(total, weight)
    assert becoming_differentiable({total: True}, {weight: True}, {total: after}) == set()


def test_a_gradient_may_take_several_iterations_to_arrive() -> None:
    iteration = _Iteration(4)
    one, two, three, weight = iteration.inputs
    ends = {
        one: iteration.call(two, two),
        two: iteration.call(three, three),
        three: iteration.call(weight, three),
    }
    starts = dict.fromkeys((one, two, three), False)
    assert becoming_differentiable(starts, {weight: True}, ends) == {one, two, three}


def test_no_gradient_flows_through_detach_or_integers() -> None:
    iteration = _Iteration(3)
    one, two, weight = iteration.inputs
    detached = iteration.call(weight, target="detach")
    places = iteration.call(weight, target=torch.argsort, example=INTEGER)
    ends = {one: iteration.call(one, detached), two: iteration.call(two, places)}
    starts = {one: False, two: False}
    assert becoming_differentiable(starts, {weight: True}, ends) == set()


def test_a_gradient_flows_through_one_of_several_results() -> None:
    iteration = _Iteration(2)
    total, weight = iteration.inputs
    both = iteration.call(weight, target=torch.sort, example=(FLOAT, INTEGER))
    ends = {total: iteration.call(total, both)}
    assert becoming_differentiable({total: False}, {weight: True}, ends) == {total}


def test_a_tied_value_is_the_same_and_sends_back_zero() -> None:
    def step(tx: Any, value: Any, anchor: Any) -> Any:
        return fx_graph.variable_of(tx, tied(tx, value.as_proxy(), anchor.as_proxy()))

    value, anchor = torch.tensor([3.0, -1.0]), torch.tensor([[float("inf")]], requires_grad=True)
    (result,) = traced(step, value, anchor).run(value, anchor)
    assert result.requires_grad and torch.equal(result, value)
    (gradient,) = torch.autograd.grad(result.sum(), anchor)
    assert gradient.tolist() == [[0.0]]
