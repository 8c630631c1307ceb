"""Nodes that only set something are found; nodes that compute are not."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx import Graph

from bcmend.tracing.speculation.setter_nodes import setter_in


def _empty(graph: Graph) -> None:
    graph.placeholder("x")


def _setter(graph: Graph) -> None:
    graph.call_function(torch.set_float32_matmul_precision, ("high",))


def _unknown(graph: Graph) -> None:
    def record() -> None:
        pass

    graph.call_function(record)


def _compared(graph: Graph) -> None:
    graph.call_function(torch._C._set_grad_enabled, (False,))
    graph.call_function(torch.set_default_dtype, (torch.float32,))


def _computing_a_size(graph: Graph) -> None:
    graph.call_function(torch.broadcast_shapes, ((2, 1), (3,)))


def _computing(graph: Graph) -> None:
    x = graph.placeholder("x")
    graph.call_function(operator.add, (x, 1))
    graph.call_function(torch._check, (x,))
    made = graph.call_function(torch.zeros, (3,))
    made.meta["example_value"] = torch.zeros(3)
    number = graph.call_function(operator.add, (1, 2))
    number.meta["example_value"] = 3
    graph.call_function(torch.ops.aten._assert_async.msg, (x, "no"))
    entered = graph.call_function(torch.amp.autocast_mode._enter_autocast, ("cpu",))
    graph.call_function(torch.amp.autocast_mode._exit_autocast, (entered,))


def _telling(graph: Graph) -> None:
    graph.call_method("requires_grad_", (graph.placeholder("x"), True))


def _telling_its_own(graph: Graph) -> None:
    made = graph.call_method("detach", (graph.placeholder("x"),))
    graph.call_method("requires_grad_", (made,))


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (_empty, ""),
        (_setter, "set_float32_matmul_precision"),
        (_unknown, "record"),
        (_compared, ""),
        (_computing, ""),
        (_computing_a_size, ""),
        (_telling, "requires_grad_"),
        (_telling_its_own, ""),
    ],
)
def test_setters_are_found_by_what_they_are_given_and_give(
    write: Callable[[Any], None], name: str
) -> None:
    graph = Graph()
    write(graph)
    assert setter_in(graph) == name
