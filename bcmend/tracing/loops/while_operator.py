"""Write ``torch.while_loop`` into the main graph: the operator, and the graphs that it calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node, Proxy

from bcmend.dynamo import compat, fx_graph, shape_env
from bcmend.dynamo.models import graph_inputs
from bcmend.dynamo.trace_state import Phase, at_the_end_of_a_graph
from bcmend.dynamo.values import TensorValue, example_of
from bcmend.tracing.backends import uncompiled_sides
from bcmend.tracing.backends.backward_sides import inverse, order_in_memory
from bcmend.tracing.loops.late_gradients import becoming_differentiable, tied
from bcmend.tracing.lowering import cond, where
from bcmend.tracing.lowering.arm_graphs import (
    copied_inside,
    installed,
    permuted,
    requires_grad,
    with_example,
)
from bcmend.tracing.numbers import predicates
from bcmend.tracing.speculation.arms import ArmTrace


@dataclass(frozen=True, slots=True)
class Body:
    """One iteration as a graph: its inputs, the condition after it, and the values it passes on.

    Each iteration changes a copy of its own of what is ``changed`` in place, tensors of the main
    graph; they are carried after all other values.
    """

    trace: ArmTrace
    entered: Sequence[Proxy]
    predicate: TensorValue
    values: Sequence[TensorValue]
    gradients: bool
    changed: Sequence[Proxy] = ()

    def change_of(self, outer: Proxy) -> int | None:
        """Return which of the changed tensors this one is, by whatever name."""
        example = outer.node.meta.get("example_value")
        examples = [each.node.meta["example_value"] for each in self.changed]
        return next((at for at, each in enumerate(examples) if each is example), None)

    def captured(self) -> list[Proxy]:
        """Return the values of the main graph that an iteration reads, or returns as they are."""
        lifted = [proxy for proxy in self.trace.lifted if self.change_of(proxy) is None]
        returned = [value.as_proxy() for value in (self.predicate, *self.values)]
        outer = [each for each in returned if each.node.graph is not self.trace.graph]
        return list({proxy.node: proxy for proxy in (*lifted, *outer)}.values())


@dataclass(frozen=True, slots=True)
class Ends:
    """When a loop goes on.

    While its condition is ``stays_if``, fewer than ``iterations_left`` have been made, the carried
    boolean at ``more`` holds, and none of those at ``exits`` does.
    """

    stays_if: bool
    iterations_left: int | None
    more: int | None
    exits: Sequence[int] = ()


def write_while(
    tx: compat.Tracer, body: Body, start: Sequence[TensorValue], ends: Ends
) -> list[TensorValue]:
    """Add the operator; return the condition at the end and the carried values."""
    first, given = start[0], [each.as_proxy() for each in start]
    if ends.iterations_left is not None:
        device = example_of(first).device
        count = fx_graph.function(tx, torch.zeros, (), dtype=torch.int64, device=device)
        given.append(count.as_proxy())
    captured = body.captured()
    graphs = [
        installed(tx, "while_cond", _condition_graph(given, captured, ends)),
        installed(tx, "while_body", _body_graph(body, given, captured)),
    ]
    apart = cond.without_aliases(tx, [*captured, *given])
    additional, operands = apart[: len(captured)], apart[len(captured) :]
    if body.gradients:
        operands, additional = (
            where.gated(tx, first, each, taken=ends.stays_if) for each in (operands, additional)
        )
        operands = _with_gradients(tx, body, operands, additional)
    arguments = (*graphs, tuple(operands), tuple(additional))
    operator = torch.ops.higher_order.while_loop
    proxy = tx.output.create_proxy("call_function", operator, arguments, {})
    with shape_env.taken_back(tx.output.shape_env):  # torch traces an iteration here
        every: Any = compat.wrap_fx_proxy(tx, proxy)
    results: list[TensorValue] = list(every.items)[: len(start)]
    if body.gradients:
        at_the_end_of_a_graph(tx.output, Phase.EDIT, partial(_let_backward_count, tx.output))
        for at in range(1, len(results)):
            after = results[at]
            if requires_grad(after.as_proxy()) and not requires_grad(operands[at]):
                after = fx_graph.method(tx, "detach", after)  # no iteration gave it a gradient
            results[at] = _unless_no_iteration(tx, first, start[at], after, ends.stays_if)
    return results


def _let_backward_count(output: compat.OutputGraph, module: GraphModule) -> None:
    """Let torch's backward of the operator take the number of an iteration out of a tensor.

    Where one graph is asked for, torch lets every graph do that.
    """
    shape_env.allow_unbacked(output.shape_env)


def _with_gradients(
    tx: compat.Tracer, body: Body, operands: Sequence[Proxy], additional: Sequence[Proxy]
) -> list[Proxy]:
    """Return the operands; those that get a gradient in a later iteration require one."""
    inner = {known: placeholder.node for known, placeholder in body.trace.lifted.items()}
    constants = {
        inner.get(known, known.node): requires_grad(each)
        for known, each in zip(body.captured(), additional, strict=True)
    }
    carried = list(zip(body.entered, operands[1:], body.values, strict=False))
    starts = {proxy.node: requires_grad(operand) for proxy, operand, _ in carried}
    ends = {proxy.node: value.as_proxy().node for proxy, _, value in carried}
    late = becoming_differentiable(starts, constants, ends)
    anchor = next((each for each in (*operands, *additional) if requires_grad(each)), None)
    return [
        operands[0],
        *(
            tied(tx, operand, anchor) if anchor is not None and proxy.node in late else operand
            for proxy, operand, _ in carried
        ),
        *operands[1 + len(carried) :],
    ]


def _unless_no_iteration(
    tx: compat.Tracer, first: TensorValue, before: TensorValue, after: TensorValue, stays_if: bool
) -> TensorValue:
    """Return a carried value after the loop, which is the one before it if there was no iteration.

    Torch's backward of the operator goes through one iteration even where the forward made none.
    """
    sides = (after, before) if stays_if else (before, after)
    one, other = (side.as_proxy() for side in sides)
    return predicates.chosen(tx, first, one, other)


def _placeholders(graph: Graph, name: str, values: Sequence[Proxy]) -> list[Node]:
    return [
        graph_inputs.placeholder_for(graph, f"{name}_{number}", value.node)
        for number, value in enumerate(values)
    ]


def _condition_graph(given: Sequence[Proxy], additional: Sequence[Proxy], ends: Ends) -> Graph:
    graph = Graph()
    carried = _placeholders(graph, "carried", given)
    _placeholders(graph, "given", additional)
    example = carried[0].meta["example_value"]

    def call(function: Any, *arguments: Any) -> Node:
        return with_example(graph.call_function(function, arguments), example)

    stays = call(torch.logical_not, carried[0])
    if ends.stays_if:
        stays = call(torch.logical_not, stays)
    if ends.iterations_left is not None:
        is_left = call(torch.lt, carried[-1], ends.iterations_left)
        stays = call(torch.logical_and, stays, is_left)
    if ends.more is not None:
        stays = call(torch.logical_and, stays, carried[ends.more])
    for each in ends.exits:
        stays = call(torch.logical_and, stays, call(torch.logical_not, carried[each]))
    graph.output(stays)
    return graph


def _as_read(graph: Graph, entered: Node) -> Node:
    """Return an input of an iteration in a form whose gradient is laid out like it."""
    example = entered.meta.get("example_value")
    if not (isinstance(example, torch.Tensor) and example.requires_grad):
        return entered
    return _with_dense_gradient(graph, entered, example)


def _body_graph(body: Body, given: Sequence[Proxy], additional: Sequence[Proxy]) -> Graph:
    graph = Graph()
    carried = _placeholders(graph, "carried", given)
    others = _placeholders(graph, "given", additional)

    def copied(node: Node, example: Any) -> Node:
        return with_example(graph.call_method("clone", (node,)), example)

    carried, others = (
        [_as_read(graph, node) if body.gradients else node for node in nodes]
        for nodes in (carried, others)
    )
    known = {proxy.node: node for proxy, node in zip(additional, others, strict=True)}
    copies = [
        copied(node, outer.node.meta["example_value"])
        for node, outer in zip(carried[1 + len(body.values) :], body.changed, strict=False)
    ]
    for outer, inner in body.trace.lifted.items():
        number = body.change_of(outer)
        known[inner.node] = known[outer.node] if number is None else copies[number]
    for proxy, node in zip(body.entered, carried[1:], strict=False):
        known[proxy.node] = node
    for node in body.trace.graph.nodes:
        if node not in known:
            known[node] = copied_inside(graph, node, known)
    values = [(known[each.as_proxy().node], each) for each in (body.predicate, *body.values)]
    results = [copied(node, example_of(value)) for node, value in values]
    results.extend(copies)
    if len(given) > len(results):
        counted = graph.call_function(torch.add, (carried[-1], 1))
        results.append(with_example(counted, carried[-1].meta["example_value"]))
    graph.output(tuple(results))
    return graph


def _with_dense_gradient(graph: Graph, placeholder: Node, example: torch.Tensor) -> Node:
    """Return an operand in a form whose gradient is laid out like it, as backward demands.

    The gradient of a sum is an expanded number: multiplied by one it is dense. That of a
    factorisation is transposed: flattening and unflattening in memory order undoes that.
    """
    order = order_in_memory(example)
    ordered_example = example.permute(order)
    before = len(graph.nodes)
    ordered = permuted(graph, placeholder, ordered_example, order)
    entered = with_example(graph.call_function(torch.mul, (ordered, 1)), ordered_example)
    if ordered_example.is_contiguous():
        flat = graph.call_method("reshape", (entered, -1))
        with_example(flat, ordered_example.reshape(-1))
        entered = with_example(graph.call_method("view_as", (flat, ordered)), ordered_example)
    entered = permuted(graph, entered, example, inverse(order))
    for node in list(graph.nodes)[before:]:
        uncompiled_sides.mark_form(node)
    return entered
