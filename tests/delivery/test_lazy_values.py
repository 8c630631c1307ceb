"""Values of a record that a graph computes when the record is delivered."""

from __future__ import annotations

import operator

import pytest
import torch
from torch.fx import Graph

from bcmend.delivery.lazy_values import GRAPHS, LazyGraph, computed


def _graph() -> Graph:
    """Return the graph of ``x -> (x * 2, x.sum())``."""
    graph = Graph()
    x = graph.placeholder("x")
    x.meta["example_value"] = object()
    twice = graph.call_function(operator.mul, (x, 2))
    graph.output((twice, graph.call_function(torch.sum, (x,))))
    return graph


X = torch.tensor([1.0, 2.0])


def test_a_value_is_one_of_the_results_as_a_tensor_or_a_number() -> None:
    lazy = LazyGraph(_graph())
    number = GRAPHS.add(lazy)
    assert computed(number, 0, False, (X,), {}).tolist() == [2.0, 4.0]
    found = computed(number, 1, True, (X,), {})
    assert found == 3.0 and type(found) is float


def test_a_graph_runs_once_for_all_values_that_are_read_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lazy = LazyGraph(_graph())
    number, runs, known = GRAPHS.add(lazy), [], {}
    call = LazyGraph.__call__

    def counted(graph: LazyGraph, *inputs: object) -> object:
        runs.append(graph)
        return call(graph, *inputs)

    monkeypatch.setattr(LazyGraph, "__call__", counted)
    computed(number, 0, False, (X,), known)
    computed(number, 1, False, (X,), known)
    assert len(runs) == 1
    computed(number, 1, False, (X,), {})
    assert len(runs) == 2


def test_what_it_computes_records_no_gradients() -> None:
    lazy = LazyGraph(_graph())
    twice, _ = lazy(X.clone().requires_grad_())
    assert not twice.requires_grad


def test_nothing_of_the_trace_stays_in_the_graph() -> None:
    graph = _graph()
    LazyGraph(graph)
    assert all(not node.meta for node in graph.nodes)
