"""Graphs that are followed from their results back to their inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from bcmend import meta_keys
from bcmend.tracing.gradients.gradient_flow import Flow, has_gradient
from bcmend.tracing.gradients.gradient_paths import RESULT


class _Built:
    """A graph whose nodes are run on fake tensors as they are added."""

    def __init__(self) -> None:
        self.graph, self.mode = Graph(), FakeTensorMode(shape_env=ShapeEnv())

    def input(self, name: str, *, gradient: bool = True, truth: bool = False) -> Node:
        node = self.graph.placeholder(name)
        with self.mode:
            kind = torch.bool if truth else torch.float32
            node.meta["example_value"] = torch.ones(
                () if truth else (3,), dtype=kind, requires_grad=gradient and not truth
            )
        return node

    def call(self, function: Any, *arguments: Any) -> Node:
        """Add a call of a function, or of a method by name."""
        given = [
            each.meta["example_value"] if isinstance(each, Node) else each for each in arguments
        ]
        with self.mode:
            if isinstance(function, str):
                node = self.graph.call_method(function, arguments)
                node.meta["example_value"] = getattr(given[0], function)(*given[1:])
            else:
                node = self.graph.call_function(function, arguments)
                node.meta["example_value"] = function(*given)
        return node

    def select(self, predicate: Node, one: Node, other: Node) -> Node:
        node = self.call(torch.where, predicate, one, other)
        node.meta[meta_keys.TAKES_A_SIDE] = True
        return node

    def paths(self, *results: Node) -> tuple[Flow, dict[Node, int]]:
        self.graph.output(results)
        flow = Flow(self.mode)
        seeds = [RESULT if has_gradient(each) else 0 for each in results]
        return flow, flow.back(GraphModule({}, self.graph), seeds, ())


@pytest.fixture
def built() -> _Built:
    return _Built()


def _edge(flow: Flow, paths: int) -> tuple[int, bool, int]:
    (edge,) = (each for at, each in enumerate(flow.paths.edges, 1) if paths == 1 << at)
    return edge.predicate, edge.side, edge.onward


def test_a_select_of_a_branch_has_two_sides(built: _Built) -> None:
    p, one, other = built.input("p", truth=True), built.input("one"), built.input("other")
    flow, paths = built.paths(built.call(torch.neg, built.select(p, one, other)))
    assert flow.predicates == {p: 0}
    assert _edge(flow, paths[one]) == (0, True, RESULT)
    assert _edge(flow, paths[other]) == (0, False, RESULT)


def test_a_select_of_the_program_has_one_path(built: _Built) -> None:
    p, one, other = built.input("p", truth=True), built.input("one"), built.input("other")
    flow, paths = built.paths(built.call(torch.where, p, one, other))
    assert (paths[one], paths[other]) == (RESULT, RESULT)
    assert flow.predicates == {}


def test_a_tensor_of_both_sides_always_gets_a_gradient(built: _Built) -> None:
    p, x = built.input("p", truth=True), built.input("x")
    one, other = built.call(torch.sin, x), built.call(torch.cos, x)
    flow, paths = built.paths(built.select(p, one, other))
    assert flow.paths.simplified(paths[x]) == RESULT


def test_nothing_flows_through_detached_and_integer_values(built: _Built) -> None:
    x, y = built.input("x"), built.input("y")
    plain, number = built.call("detach", x), built.call(torch.argmax, x)
    found = built.call(torch.add, built.call(torch.add, plain, number), y)
    _, paths = built.paths(found)
    assert paths[x] == 0
    assert paths[y] == RESULT


def test_what_is_written_is_read_through_another_name(built: _Built) -> None:
    p, x, y = built.input("p", truth=True), built.input("x"), built.input("y")
    memory = built.call(torch.neg, y)
    view = built.call("view", memory, 3)
    before = built.call(torch.sin, view)
    built.call("add_", memory, x)
    after = built.call(torch.cos, view)
    flow, paths = built.paths(built.select(p, after, before))
    assert _edge(flow, paths[x])[1] is True
    assert flow.paths.simplified(paths[y]) == RESULT


def test_what_is_written_to_an_input_always_gets_a_gradient(built: _Built) -> None:
    x, state = built.input("x"), built.input("state", gradient=False)
    built.call("add_", state, x)
    _, paths = built.paths(built.call(torch.sin, state))
    assert paths[x] == RESULT


def test_a_copy_that_tracing_takes_for_the_original_is_memory_of_its_own(built: _Built) -> None:
    p, x, y = built.input("p", truth=True), built.input("x"), built.input("y")
    memory = built.call(torch.neg, y)
    copy = built.call("clone", memory)
    copy.meta["example_value"] = memory.meta["example_value"]
    built.call("add_", copy, x)
    changed = built.select(p, copy, memory)
    flow, paths = built.paths(changed, built.call(torch.sin, memory))
    assert _edge(flow, paths[x])[1] is True


def test_a_predicate_that_changes_decides_nothing(built: _Built) -> None:
    given, one, other = built.input("p", truth=True), built.input("one"), built.input("other")
    p = built.call(torch.logical_not, given)
    selected = built.select(p, one, other)
    built.call("logical_not_", p)
    flow, paths = built.paths(selected)
    assert (paths[one], paths[other]) == (RESULT, RESULT)
    assert flow.predicates == {}


def test_whether_a_fake_tensor_requires_gradients_is_not_asked(built: _Built) -> None:
    x = built.input("x")
    apart = built.call(torch.sin, x)
    apart.meta["example_value"] = apart.meta["example_value"].detach()
    _, paths = built.paths(built.call(torch.cos, apart))
    assert paths[x] == RESULT


def test_nothing_flows_where_no_gradients_are_recorded(built: _Built) -> None:
    x, y = built.input("x"), built.input("y")
    built.graph.call_function(torch._C._set_grad_enabled, (False,))
    plain = built.call(torch.sin, x)
    built.graph.call_function(torch._C._set_grad_enabled, (True,))
    _, paths = built.paths(built.call(torch.mul, plain, y))
    assert (paths[x], paths[y]) == (0, RESULT)
