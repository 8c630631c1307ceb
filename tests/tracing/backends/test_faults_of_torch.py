"""What stock torch does wrong, or twice, and a module of bcmend works round.

Where a test fails, torch is mended: the module that it names can go, or do less.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import aot_function, make_boxed_func
from torch.fx import GraphModule

ATEN = torch.ops.aten


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def _as_compiled(
    program: Callable[..., Tensor], *inputs: Tensor
) -> tuple[GraphModule, GraphModule]:
    """Return the forward and the backward that a back end compiles for a program."""
    found: list[GraphModule] = []

    def keep(graph: GraphModule, _: Any) -> Any:
        found.append(graph)
        return make_boxed_func(graph.forward)

    backend = aot_autograd(fw_compiler=keep, bw_compiler=keep)
    torch.compile(program, backend=backend, fullgraph=True)(*inputs).sum().backward()
    forward, backward = found
    return forward, backward


def _sides(graph: GraphModule) -> list[list[Any]]:
    """Return what the sides of the choices in a graph call."""
    return [
        [node.target for node in side.graph.nodes if node.op == "call_function"]
        for _, side in graph.named_children()
        if isinstance(side, GraphModule)
    ]


def _choice(predicate: Tensor, x: Tensor) -> Any:
    return torch.cond(predicate, lambda x: x.sin().exp(), lambda x: x.cos().exp(), (x,))


def test_the_backward_of_a_choice_computes_the_forward_again() -> None:
    """``bcmend/tracing/backends/saved_values.py``"""
    x = torch.ones(3, requires_grad=True)
    _, backward = _as_compiled(_choice, torch.tensor(True), x)
    sides = _sides(backward)
    assert len(sides) == 2 and all(ATEN.exp.default in side for side in sides)


def _two_choices(one: Tensor, other: Tensor, x: Tensor) -> Any:
    return _choice(other, _choice(one, x))


def test_choices_that_are_alike_have_graphs_of_their_own() -> None:
    """``bcmend/tracing/backends/traced_choices.py``"""
    x = torch.ones(3, requires_grad=True)
    forward, backward = _as_compiled(_two_choices, torch.tensor(True), torch.tensor(False), x)
    for graph in (forward, backward):
        then_one, else_one, then_other, else_other = _sides(graph)
        assert then_one == then_other and else_one == else_other


def _sum_of_products(count: Tensor, x: Tensor, weight: Tensor) -> Any:
    start = torch.tensor(0), torch.zeros(3)
    return torch.while_loop(
        lambda at, total: at < count, lambda at, total: (at + 1, total + x * weight), start
    )[1]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_carried_tensor_gets_no_gradient_in_a_later_iteration(backend: str) -> None:
    """``bcmend/tracing/loops/late_gradients.py``: the gradient of one iteration of three."""
    x, weight = torch.full((3,), 5.0), torch.full((3,), 2.0, requires_grad=True)
    compiled = torch.compile(_sum_of_products, backend=backend, fullgraph=True)
    compiled(torch.tensor(3), x, weight).sum().backward()
    assert weight.grad is not None and not weight.grad.equal(3 * x)
    assert weight.grad.equal(x)


def _from_a_leaf(x: Tensor) -> Tensor:
    return x.detach().requires_grad_() * 2


def test_what_is_computed_from_a_leaf_in_a_graph_requires_no_gradient() -> None:
    """``bcmend/tracing/substitutes/autograd_leaf.py``"""
    differentiated = aot_function(_from_a_leaf, lambda graph, _: make_boxed_func(graph.forward))
    assert _from_a_leaf(torch.ones(3)).requires_grad
    assert not differentiated(torch.ones(3)).requires_grad


def test_choices_and_loops_are_not_stored_in_caches() -> None:
    """``bcmend/tracing/backends/compile_caches.py``"""
    assert not torch.ops.higher_order.cond.cacheable()
    assert not torch.ops.higher_order.while_loop.cacheable()


def test_a_back_end_that_compiles_nothing_traces_both_sides_at_each_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``bcmend/tracing/backends/direct_runs.py``"""
    module: Any = sys.modules["torch._higher_order_ops.cond"]
    original, traced = module.materialize_as_graph, []

    def count(*arguments: Any, **named: Any) -> Any:
        traced.append(arguments[0])
        return original(*arguments, **named)

    monkeypatch.setattr(module, "materialize_as_graph", count)
    compiled = torch.compile(_choice, backend="eager", fullgraph=True)
    x = torch.ones(3, requires_grad=True)
    for calls in range(1, 4):
        compiled(torch.tensor(True), x).sum().backward()
        assert len(traced) == 2 * calls
