"""Operations in the graph being traced, and taking them back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.fx import Graph, GraphModule, Proxy
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from bcmend.dynamo import fx_graph


class _Tracer:
    """The parts of Dynamo's tracer of a graph that are read."""

    def __init__(self, parent: _Tracer | None = None) -> None:
        self.graph, self.parent = Graph(), parent
        self.bound_symbols: dict[Any, Any] = {}


def _trace() -> Any:
    output = SimpleNamespace(
        current_tracer=_Tracer(), nn_modules={}, shape_env=ShapeEnv(), _current_tx=[]
    )
    return SimpleNamespace(output=output)


def _names(tx: Any) -> list[str]:
    return [node.name for node in tx.output.current_tracer.graph.nodes]


def test_what_is_written_in_a_transaction_is_removed() -> None:
    tx = _trace()
    graph = tx.output.current_tracer.graph
    x = graph.placeholder("x")
    before = graph.call_function(torch.neg, (x,))
    transaction = fx_graph.Transaction(tx)
    graph.call_function(torch.exp, (graph.call_function(torch.abs, (before,)),))
    assert not transaction.is_committed
    transaction.roll_back()
    assert _names(tx) == ["x", "neg"]


def test_a_transaction_in_an_empty_graph_removes_everything_but_inputs() -> None:
    tx = _trace()
    graph = tx.output.current_tracer.graph
    transaction = fx_graph.Transaction(tx)
    x = graph.placeholder("x")
    graph.call_function(torch.neg, (x,))
    transaction.roll_back()
    assert _names(tx) == ["x"]


def test_a_committed_transaction_says_so_and_leaves_the_graph() -> None:
    tx = _trace()
    transaction = fx_graph.Transaction(tx)
    tx.output.current_tracer.graph.call_function(torch.rand, (2,))
    transaction.commit()
    assert transaction.is_committed and _names(tx) == ["rand"]


def test_a_node_that_is_read_stays() -> None:
    """Nodes are removed from the last one on: what an input's number needs is not."""
    tx = _trace()
    graph = tx.output.current_tracer.graph
    transaction = fx_graph.Transaction(tx)
    x = graph.placeholder("x")
    graph.call_method("item", (x,)).target = "item"
    weight = graph.get_attr("weight")
    graph.get_attr("cond_true_0")
    graph.call_function(torch.add, (x, weight))
    transaction.roll_back()
    assert [node.target for node in graph.nodes] == ["x", "item", "weight"]


def test_subgraphs_that_nothing_uses_go_and_others_stay() -> None:
    tx = _trace()
    modules = tx.output.nn_modules
    empty = GraphModule({}, Graph())
    modules["cond_true_0"] = empty
    transaction = fx_graph.Transaction(tx)
    modules.update(cond_true_1=empty, used=empty, layer=torch.nn.Identity())
    graph = tx.output.current_tracer.graph
    graph.get_attr("used")
    graph.get_attr("cond_true_1")
    transaction.roll_back()
    assert list(modules) == ["cond_true_0", "used", "layer"]


def test_symbols_of_removed_nodes_are_unbound() -> None:
    tx = _trace()
    tracer = tx.output.current_tracer
    x = tracer.graph.placeholder("x")
    tracer.bound_symbols["s0"] = Proxy(x)
    transaction = fx_graph.Transaction(tx)
    tracer.bound_symbols["u0"] = Proxy(tracer.graph.call_function(torch.sum, (x,)))
    tracer.bound_symbols["u1"] = 3
    transaction.roll_back()
    assert list(tracer.bound_symbols) == ["s0", "u1"]


def test_assertions_of_a_transaction_are_taken_back() -> None:
    tx = _trace()
    environment = tx.output.shape_env
    number = environment.create_unbacked_symint()
    transaction = fx_graph.Transaction(tx)
    torch._check(number >= 5)
    torch._check(environment.create_unbacked_symint() >= 7)
    assert sum(map(len, environment.deferred_runtime_asserts.values())) == 2
    transaction.roll_back()
    assert sum(map(len, environment.deferred_runtime_asserts.values())) == 0
    assert environment.num_deferred_runtime_asserts == 0


def test_a_trace_remembers_that_nodes_were_taken_back() -> None:
    tx = _trace()
    assert not fx_graph.ERASED.of(tx.output)
    node = tx.output.current_tracer.graph.call_function(torch.rand, (2,))
    value: Any = SimpleNamespace(as_proxy=lambda: Proxy(node))
    assert not fx_graph.is_erased(value)
    tx.output.current_tracer.graph.erase_node(node)
    fx_graph.Transaction(tx).roll_back()
    assert fx_graph.ERASED.of(tx.output) and fx_graph.is_erased(value)


def test_tracers_come_from_the_inside_out() -> None:
    tx = _trace()
    root = tx.output.current_tracer
    tx.output.current_tracer = inner = _Tracer(root)
    assert list(fx_graph.tracers(tx)) == [inner, root]


@pytest.mark.parametrize("model", [object(), None])
def test_only_tensors_become_arrays_beside_an_array(model: Any) -> None:
    value = object()
    assert fx_graph.in_kind_of(_trace(), model, value) is value
