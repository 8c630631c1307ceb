"""What an arm reads of the main trace, and how that was when the arm first met it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch.fx import Graph, Proxy
from torch.fx.proxy import GraphAppendingTracer

from bcmend.tracing.sites.lifted_inputs import Entry, Lifted, before_arms


def _proxy(graph: Graph, name: str, example: object = None) -> Proxy:
    node = graph.placeholder(name)
    if example is not None:
        node.meta["example_value"] = example
    return Proxy(node, GraphAppendingTracer(graph))


def test_the_state_of_each_tensor_is_noted_beside_it() -> None:
    main, arm, lifted = Graph(), Graph(), Lifted()
    tensor, number = _proxy(main, "tensor", torch.ones(2)), _proxy(main, "number", 3)
    inner = _proxy(arm, "inner")
    lifted[tensor] = inner
    lifted[number] = _proxy(arm, "other")
    assert lifted[tensor] is inner
    assert list(lifted.entries) == [tensor]
    assert lifted.entries[tensor].example is tensor.node.meta["example_value"]


def test_a_tensor_with_another_form_spoils_what_was_read() -> None:
    example, lifted = torch.ones(2, 3), Lifted()
    lifted[_proxy(Graph(), "outer", example)] = _proxy(Graph(), "inner")
    example.add_(1)
    assert not lifted.spoiled
    example.t_()
    assert lifted.spoiled


def test_a_tensor_that_gained_gradients_spoils_what_was_read() -> None:
    example, lifted = torch.ones(2), Lifted()
    lifted[_proxy(Graph(), "outer", example)] = _proxy(Graph(), "inner")
    example.requires_grad_()
    assert lifted.spoiled


def test_gradients_that_were_there_are_not_gained() -> None:
    entry = Entry.of(torch.ones(2, requires_grad=True))
    entry.example.requires_grad_(False)
    assert not entry.gained_gradients


def test_a_sparse_tensor_has_no_strides_to_compare() -> None:
    example = torch.eye(2).to_sparse()
    entry = Entry.of(example)
    assert not entry.form_changed


def _arm(graph: Graph, parent: Any, **lifted: Any) -> Any:
    return SimpleNamespace(graph=graph, parent=parent, lifted_freevars=lifted.get("lifted", {}))


def test_a_value_is_followed_out_of_all_arms() -> None:
    main, middle, innermost = Graph(), Graph(), Graph()
    outside, between, inside = _proxy(main, "x"), _proxy(middle, "x"), _proxy(innermost, "x")
    root = SimpleNamespace(parent=None)
    outer_arm = _arm(middle, root, lifted={outside: between})
    inner_arm = _arm(innermost, outer_arm, lifted={between: inside, "symbol": inside})
    tx: Any = SimpleNamespace(output=SimpleNamespace(current_tracer=inner_arm))
    assert before_arms(tx, inside) is outside


def test_what_an_arm_computes_is_nowhere_else() -> None:
    arm = Graph()
    made = Proxy(arm.call_function(torch.neg, (arm.placeholder("x"),)), GraphAppendingTracer(arm))
    root = SimpleNamespace(parent=None)
    tx: Any = SimpleNamespace(output=SimpleNamespace(current_tracer=_arm(arm, root)))
    assert before_arms(tx, made) is made


def test_how_often_a_tensor_was_changed_is_noted_beside_it() -> None:
    example, lifted = torch.ones(2), Lifted(lambda each: each._version)
    example.add_(1)
    outer = _proxy(Graph(), "x", example)
    lifted[outer] = outer
    assert lifted.entries[outer].count == 1
