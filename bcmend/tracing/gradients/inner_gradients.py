"""Gradients that a call computes itself: ``torch.autograd.grad(energy, positions)``.

Dynamo traces them where ``torch._dynamo.config.trace_autograd_ops`` is set, which it is for such a
call. It gives up where a result of the call was computed by operations that the gradients went
through and that keep nothing for a second time: a backward through the result raises an error in
eager execution. Here the operations keep what they have, so that such a backward gives gradients.

It asks for the histories of what is given by place, but not by name, and when it traces the call
only. So all is given by place here, and an input of the graph whose history may lead to what the
gradients are computed for is guarded to have none.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import nn
from torch.fx import Graph, Node, Proxy

from bcmend.dynamo import compat, handlers
from bcmend.dynamo.handlers import PASS, Answer, Call
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.values import Value
from bcmend.tracing.effects.operator_runs import (
    is_in_place,
    run_of,
    storage_of,
    storages_of,
    tensors_of,
)
from bcmend.tracing.gradients.arm_selects import is_select
from bcmend.tracing.sites import capture_mode
from bcmend.tracing.sites.refusal import Refusal

#: Of a trace: what keeps nothing for a second time in eager execution.
_GONE_THROUGH: Final[Slot[set[Any]]] = Slot(set, rolls_back=False)


@handlers.function(torch.autograd.grad, "gradients inside of a graph")
def _break_at_obstacles(call: Call) -> Answer:
    """Break the graph where it would not have the gradients of eager execution.

    In a graph both sides of a lowered branch get gradients, of which zero times what is infinite is
    not a number. What is not made of torch's operators has no second derivative.
    """
    if capture_mode.in_mended_code(call.tx):
        for node in behind([*call.args[:1], *call.kwargs.values()]):
            if node.op not in _INPUTS and (is_select(node) or not _is_of_torch(node)):
                handlers.break_graph(
                    "gradients through a branch",
                    str(node.target),
                    "Both sides of a branch get gradients in a graph.",
                )
    return PASS


_INPUTS: Final = ("placeholder", "get_attr")


def _nodes(values: list[Value]) -> list[Node]:
    leaves = compat.tree_leaves([each.as_proxy() for each in values])
    return [each.node for each in leaves if isinstance(each, Proxy)]


def behind(values: list[Value]) -> Iterator[Node]:
    """Yield the calls and inputs that gradients of values go through."""
    waiting = _nodes(values)
    seen = set(waiting)
    writers = _writers(waiting[0].graph) if waiting else {}
    while waiting:
        node = waiting.pop()
        found = tensors_of(node)
        if found and not any(each.requires_grad for each in found):
            continue
        if found or is_in_place(node):  # a store to items gives nothing
            yield node
        writing = [writer for each in found for writer in writers.get(storage_of(each), ())]
        for each in (*node.all_input_nodes, *writing):
            if each not in seen:
                seen.add(each)
                waiting.append(each)


def _writers(graph: Graph) -> dict[int, list[Node]]:
    """Return the nodes that write to each memory: what they write has a history."""
    found: dict[int, list[Node]] = {}
    for node in graph.nodes:
        if node.op in ("call_function", "call_method") and is_in_place(node):
            run = run_of(node)
            given = [storage for each in node.all_input_nodes for storage in storages_of(each)]
            written = given if run is None else run.storages_written(reshaped=False)
            for storage in written:
                found.setdefault(storage, []).append(node)
    return found


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


_SIGNATURE: Final = inspect.signature(torch.autograd.grad)

#: What Dynamo looks for among the arguments that are given by place.
_BY_PLACE: Final = ("outputs", "inputs")


def _as_torch_checks_them(
    arguments: list[Value], named: dict[str, Value]
) -> tuple[list[Value], dict[str, Value]]:
    """Return arguments, of which Dynamo finds some by their place alone, and others by name.

    Raises:
        Refusal: the function takes no such arguments.
    """
    try:
        given = dict(_SIGNATURE.bind(*arguments, **named).arguments)
    except TypeError as error:
        raise Refusal("no-equal-substitute", "other arguments") from error
    return [given.pop(name).realize() for name in _BY_PLACE], given


def _require_no_way_outside(tx: compat.Tracer, by_place: list[Value]) -> None:
    """Break the graph where a history outside of it may lead to what is differentiated by.

    Where none does now, a call with such a history is traced anew.
    """
    outputs, inputs = by_place
    wanted = {node for node in _nodes([inputs]) if node.op in _INPUTS}
    if not wanted:
        return
    for node in behind([outputs]):
        if node.op in _INPUTS and wanted != {node}:  # nothing is in its own history
            _require_leaf(node)


def require_leaves(outputs: list[Value]) -> None:
    """Break the graph where gradients of tensors go on into a history outside of it."""
    for node in behind(outputs):
        if node.op in _INPUTS:
            _require_leaf(node)


def _require_leaf(node: Node) -> None:
    if not node.meta["example_value"].is_leaf:
        handlers.break_graph(
            "gradients through a history",
            node.name,
            "The history of an input of the graph may lead to another input.",
        )
    given = node.meta.get("grapharg")
    if given is not None and not isinstance(given.example, nn.Parameter):
        compat.install_guard(compat.Guard(given.source, _IS_LEAF))


def _is_leaf(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.is_leaf


def _IS_LEAF(builder: compat.GuardBuilderBase, guard: compat.Guard) -> None:
    assert isinstance(builder, compat.GuardBuilder)
    code = [f"{guard.name}.is_leaf"]
    builder.get_guard_manager(guard).add_lambda_guard(_is_leaf, code, guard.user_stack)


def computed(
    tx: compat.Tracer, gradients: Any, arguments: list[Value], named: dict[str, Value]
) -> Value:
    """Return what ``torch.autograd.grad`` gives, where a graph has the whole call."""
    by_place, others = _as_torch_checks_them(arguments, named)
    _require_no_way_outside(tx, by_place)
    output = tx.output
    gone_through = _GONE_THROUGH.of(output)
    output.autograd_grad_consumed_grad_fns = set(gone_through)
    try:
        with compat.dynamo_config.patch(trace_autograd_ops=True):
            result: Value = gradients.call_function(tx, by_place, others)
        gone_through |= output.autograd_grad_consumed_grad_fns
    finally:
        output.autograd_grad_consumed_grad_fns = set()
    nodes = reversed(output.current_tracer.graph.nodes)
    node = next(each for each in nodes if each.target is torch.autograd.grad)
    if node.kwargs.get("create_graph") is not True:
        node.update_kwarg("retain_graph", True)
    return result
