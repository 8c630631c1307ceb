"""Which nodes draw random numbers, and how draws and states of generators are preserved."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.fx import Graph, GraphModule
from torch.nn import functional

from bcmend.dynamo import compat
from bcmend.tracing.effects import random_draws
from bcmend.tracing.effects.random_draws import drawing_inside, frame_draws, may_draw, nodes_of
from bcmend.tracing.search.calls import CURRENT


@pytest.mark.parametrize(
    ("target", "arguments", "expected"),
    [
        (torch.rand, ((2,),), True),
        (functional.dropout, (None, 0.5, True), True),
        (functional.dropout, (None, 0.5, False), False),
        (torch.add, (None, None), False),
        ("normal_", (None,), True),
        ("add", (None, 1), False),
    ],
)
def test_a_call_may_draw(target: Any, arguments: Any, expected: bool) -> None:
    kind = "call_method" if isinstance(target, str) else "call_function"
    assert may_draw(Graph().create_node(kind, target, arguments)) is expected


def test_an_input_draws_nothing() -> None:
    assert not may_draw(Graph().placeholder("rand"))


def _module(target: Any, *arguments: Any) -> GraphModule:
    graph = Graph()
    graph.output((graph.call_function(target, arguments),))
    return GraphModule({}, graph)


def _calling(inner: GraphModule) -> GraphModule:
    graph = Graph()
    called = graph.get_attr("inner")
    graph.output((graph.call_function(torch.ops.higher_order.cond, (True, called, called, ())),))
    return GraphModule({"inner": inner}, graph)


def test_an_operator_draws_by_the_graphs_that_it_runs() -> None:
    drawing, adding = _module(torch.rand, (2,)), _module(torch.add, 1, 2)
    for inner, name in ((drawing, "rand"), (_calling(drawing), "rand"), (adding, "")):
        module = _calling(inner)
        cond = next(node for node in module.graph.nodes if node.op == "call_function")
        assert drawing_inside(cond, {"inner": inner}) == name
        assert drawing_inside(cond, {}) == ""


def test_a_frame_draws_by_its_graph_its_subgraphs_and_its_calls_before() -> None:
    def frame(graph: Graph, *modules: Any, calls: Any = ()) -> Any:
        named = {f"module_{at}": each for at, each in enumerate(modules)}
        return SimpleNamespace(graph=graph, nn_modules=named, random_calls=list(calls))

    adding, drawing = _module(torch.add, 1, 2), _module(torch.rand, (2,))
    assert len(nodes_of(frame(adding.graph, drawing, torch.nn.Linear(1, 1)))) == 4
    assert not frame_draws(frame(adding.graph))
    assert frame_draws(frame(drawing.graph)) and frame_draws(frame(adding.graph, drawing))
    assert frame_draws(frame(adding.graph, calls=[random.random]))


def _unread(*targets: Any) -> GraphModule:
    graph = Graph()
    x = graph.placeholder("x")
    for target in targets:
        drawn = graph.call_function(target, (x,))
        drawn.meta["example_value"] = torch.ones(2)
    graph.output((x,))
    return GraphModule({}, graph)


def test_a_draw_that_nobody_reads_gets_an_assertion_for_a_reader() -> None:
    module = _unread(torch.rand_like, torch.exp)
    random_draws._keep_unused(module)
    module.graph.eliminate_dead_code()
    targets = [node.target for node in module.graph.nodes]
    assert torch.rand_like in targets and compat.ASSERT_ASYNC in targets
    assert torch.exp not in targets, "only draws are of use"
    assert torch.equal(module(torch.ones(2))[0], torch.ones(2))


def test_a_draw_that_is_read_gets_no_assertion() -> None:
    module = _module(torch.rand, (2,))
    before = [node.target for node in module.graph.nodes]
    random_draws._keep_unused(module)
    assert [node.target for node in module.graph.nodes] == before


def test_generators_of_python_and_numpy_are_put_back() -> None:
    states = random_draws.states_of_python()
    expected = random.random(), np.random.rand()
    random_draws.put_back_python(states)
    assert (random.random(), np.random.rand()) == expected


@pytest.mark.parametrize("of_python", [True, False])
def test_states_are_put_back_once(of_python: bool) -> None:
    random_draws._take(of_python)
    first = torch.rand(2), random.random()
    random_draws.restore_states()
    again = torch.rand(2), random.random()
    assert torch.equal(first[0], again[0])
    assert (first[1] == again[1]) is of_python
    random_draws.restore_states()
    assert not torch.equal(torch.rand(2), again[0])


def test_forgotten_states_are_not_put_back() -> None:
    random_draws._take(True)
    first = torch.rand(2)
    CURRENT.states = None
    random_draws.restore_states()
    assert not torch.equal(torch.rand(2), first)
