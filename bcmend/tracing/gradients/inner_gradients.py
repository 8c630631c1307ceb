"""Gradients that a call computes itself: ``torch.autograd.grad(energy, positions)``.

Dynamo traces them where ``torch._dynamo.config.trace_autograd_ops`` is set, which it is for such a
call. It gives up where a result of the call was computed by operations that the gradients went
through and that keep nothing for a second time: a backward through the result raises an error in
eager execution. Here the operations keep what they have, so that such a backward gives gradients.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch.fx import Node, Proxy

from bcmend.dynamo import compat, handlers
from bcmend.dynamo.handlers import PASS, Answer, Call
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.values import Value
from bcmend.tracing.gradients.arm_selects import is_select
from bcmend.tracing.sites import capture_mode

#: Of a trace: what keeps nothing for a second time in eager execution.
_GONE_THROUGH: Final[Slot[set[Any]]] = Slot(set, rolls_back=False)


@handlers.function(torch.autograd.grad, "gradients inside of a graph")
def _break_at_obstacles(call: Call) -> Answer:
    """Break the graph where it would not have the gradients of eager execution.

    In a graph both sides of a lowered branch get gradients, of which zero times what is infinite is
    not a number. What is not made of torch's operators has no second derivative.
    """
    if capture_mode.in_mended_code(call.tx):
        for node in _behind([*call.args[:1], *call.kwargs.values()]):
            if is_select(node) or not _is_of_torch(node):
                handlers.break_graph(
                    "gradients through a branch",
                    str(node.target),
                    "Both sides of a branch get gradients in a graph.",
                )
    return PASS


def _behind(values: list[Value]) -> Iterator[Node]:
    """Yield the calls that gradients of values go through."""
    leaves = compat.tree_leaves([each.as_proxy() for each in values])
    waiting = [each.node for each in leaves if isinstance(each, Proxy)]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        examples = compat.tree_leaves(node.meta.get("example_value"))
        if not any(isinstance(each, torch.Tensor) and each.requires_grad for each in examples):
            continue
        if node.op not in ("placeholder", "get_attr"):
            yield node
        for each in node.all_input_nodes:
            if each not in seen:
                seen.add(each)
                waiting.append(each)


def _is_of_torch(node: Node) -> bool:
    """Return whether a node calls what torch can differentiate as often as is asked for."""
    target: Any = node.target
    if node.op == "call_method" or target is operator.getitem:
        return True
    if isinstance(target, compat.HigherOrderOperator) or node.op != "call_function":
        return False
    if isinstance(target, compat.OpOverload):
        return bool(target.namespace == "aten")
    module = getattr(target, "__module__", None) or "torch"  # functions of C have none
    return module.partition(".")[0] in ("torch", "_operator", "math")


def computed(
    tx: compat.Tracer, gradients: Any, arguments: list[Value], named: dict[str, Value]
) -> Value:
    """Return what ``torch.autograd.grad`` gives, where a graph has the whole call."""
    output = tx.output
    gone_through = _GONE_THROUGH.of(output)
    output.autograd_grad_consumed_grad_fns = set(gone_through)
    try:
        with compat.dynamo_config.patch(trace_autograd_ops=True):
            result: Value = gradients.call_function(tx, arguments, named)
        gone_through |= output.autograd_grad_consumed_grad_fns
    finally:
        output.autograd_grad_consumed_grad_fns = set()
    nodes = reversed(output.current_tracer.graph.nodes)
    node = next(each for each in nodes if each.target is torch.autograd.grad)
    if node.kwargs.get("create_graph") is not True:
        node.update_kwarg("retain_graph", True)
    return result
