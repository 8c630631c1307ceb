"""Write ``torch.while_loop`` into the main graph.

Reads one turn, traced over inputs of its own, and what the first turn is given; adds the operator
and the graphs that it calls, with what its backward needs; returns the condition at the end and the
values that the last turn has handed on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._dynamo.variables import TensorVariable
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builder import wrap_fx_proxy
from torch._dynamo.variables.tensor import SymNodeVariable
from torch.fx import Graph, GraphModule, Node, Proxy

from bcmend.runtime import asserted, lower
from bcmend.runtime.arms import ArmTrace
from bcmend.runtime.carried import becoming_differentiable, tied
from bcmend.runtime.merge import example_of

__all__ = ["Body", "Ends", "has_proxy", "requires_grad", "write_while"]


@dataclass(frozen=True, slots=True)
class Body:
    """One turn as a graph: what enters, the condition after it, and what it hands on.

    Each turn changes a copy of its own of what is ``changed`` in place, tensors of the main graph;
    they enter and are handed on behind all else.
    """

    trace: ArmTrace
    entered: Sequence[Proxy]
    predicate: TensorVariable
    values: Sequence[VariableTracker]
    gradients: bool
    changed: Sequence[Proxy] = ()

    def change_of(self, outer: Proxy) -> int | None:
        """Return which of the changed tensors this one is, by whatever name."""
        example = outer.node.meta.get("example_value")
        for number, each in enumerate(self.changed):
            if each.node.meta["example_value"] is example:
                return number
        return None


@dataclass(frozen=True, slots=True)
class Ends:
    """When a loop goes on: while its condition is ``stays_if``, and there is a turn left.

    That says the number ``turns_left``, or the carried truth at ``more``, where there is one. Where
    one of the carried truths at ``exits`` holds, it ends too.
    """

    stays_if: bool
    turns_left: int | None
    more: int | None
    exits: Sequence[int] = ()


def write_while(
    tx: Any, body: Body, start: Sequence[VariableTracker], ends: Ends
) -> list[VariableTracker]:
    """Add the operator; return the condition at the end and the carried values."""
    given = list(start)
    first = start[0]
    assert isinstance(first, TensorVariable)
    if ends.turns_left is not None:
        given.append(_number_of_turns(tx, start[0]))
    outer = {proxy.node: proxy for proxy in body.trace.lifted if body.change_of(proxy) is None}
    more = [node for node in _outer_values(body) if node not in outer]
    outer.update((proxy.node, proxy) for proxy in more)
    additional = captured = list(outer.values())
    graphs = {
        "cond": _condition_graph(given, additional, ends),
        "body": _body_graph(body, given, additional),
    }
    names = []
    for name, graph in graphs.items():
        module = GraphModule(dict(tx.output.nn_modules), graph)
        names.append(tx.output.install_subgraph(f"while_{name}", module))
    attributes = [tx.output.create_proxy("get_attr", name, (), {}) for name in names]
    apart = lower.without_aliases(tx, [*additional, *(each.as_proxy() for each in given)])
    additional, operands = apart[: len(additional)], apart[len(additional) :]
    if body.gradients:
        operands, additional = (
            lower.gated(tx, first, each, taken=ends.stays_if) for each in (operands, additional)
        )
        operands = _with_gradients(tx, body, operands, captured, additional)
    proxy = tx.output.create_proxy(
        "call_function",
        torch.ops.higher_order.while_loop,
        (*attributes, tuple(operands), tuple(additional)),
        {},
    )
    with asserted.taken_back(tx.output.shape_env):  # torch goes through a turn here
        every: Any = wrap_fx_proxy(tx, proxy)
    results = list(every.items)
    if not body.gradients:
        return results
    return [
        results[0],
        *(
            _unless_no_turn(tx, first, one, _as_given(tx, operand, other), ends.stays_if)
            for one, operand, other in zip(start[1:], operands[1:], results[1:], strict=False)
        ),
    ]


def _as_given(tx: Any, operand: Any, result: VariableTracker) -> VariableTracker:
    """Return a result without a gradient, if no turn gave it one."""
    if requires_grad(operand) or not requires_grad(result.as_proxy()):
        return result
    proxy = tx.output.create_proxy("call_method", "detach", (result.as_proxy(),), {})
    detached: VariableTracker = wrap_fx_proxy(tx, proxy)
    return detached


def _with_gradients(
    tx: Any,
    body: Body,
    operands: Sequence[Any],
    outer: Sequence[Any],
    additional: Sequence[Proxy],
) -> list[Any]:
    """Return the first values, with a gradient where a later one has one."""
    inner = {known: placeholder.node for known, placeholder in body.trace.lifted.items()}
    constants = {
        inner.get(known, known.node): requires_grad(each)
        for known, each in zip(outer, additional, strict=True)
    }
    carried = list(zip(body.entered, operands[1:], body.values, strict=False))
    starts = {proxy.node: requires_grad(operand) for proxy, operand, _ in carried}
    ends = {proxy.node: value.as_proxy().node for proxy, _, value in carried if has_proxy(value)}
    late = becoming_differentiable(starts, constants, ends)
    anchors = [each for each in (*operands, *additional) if requires_grad(each)]
    return [
        operands[0],
        *(
            tied(tx, operand, anchors[0]) if proxy.node in late else operand
            for proxy, operand, _ in carried
        ),
        *operands[1 + len(carried) :],
    ]


def requires_grad(value: Any) -> bool:
    example = value.node.meta.get("example_value") if isinstance(value, Proxy) else None
    return isinstance(example, torch.Tensor) and example.requires_grad


def _unless_no_turn(
    tx: Any, first: TensorVariable, before: VariableTracker, after: VariableTracker, stays_if: bool
) -> VariableTracker:
    """Return a carried value after the loop, which is the one before it if there was no turn.

    Torch's backward of the operator goes through one turn even where the forward made none.
    """
    sides = (after, before) if stays_if else (before, after)
    one, other = (side.as_proxy() for side in sides)
    return lower.chosen(tx, first, one, other)


def _number_of_turns(tx: Any, like: VariableTracker) -> VariableTracker:
    device = example_of(like).device  # type: ignore[arg-type]
    proxy = tx.output.create_proxy(
        "call_function", torch.zeros, ((),), {"dtype": torch.int64, "device": device}
    )
    result: VariableTracker = wrap_fx_proxy(tx, proxy)
    return result


def _outer_values(body: Body) -> list[Any]:
    """Return the values of the main graph that a turn hands on without having looked at them."""
    graph = body.trace.graph
    proxies = [value.as_proxy() for value in (body.predicate, *body.values) if has_proxy(value)]
    return [proxy for proxy in proxies if proxy.node.graph is not graph]


def has_proxy(value: VariableTracker) -> bool:
    return isinstance(value, (TensorVariable, SymNodeVariable))


def _placeholders(
    graph: Graph, given: Sequence[VariableTracker], additional: Sequence[Proxy]
) -> tuple[list[Node], list[Node]]:
    carried = []
    for number, value in enumerate(given):
        node = graph.placeholder(f"carried_{number}")
        if has_proxy(value):
            node.meta.update(value.as_proxy().node.meta)
        carried.append(node)
    others = []
    for number, proxy in enumerate(additional):
        node = graph.placeholder(f"given_{number}")
        node.meta.update(proxy.node.meta)
        others.append(node)
    return carried, others


def _condition_graph(
    given: Sequence[VariableTracker],
    additional: Sequence[Proxy],
    ends: Ends,
) -> Graph:
    graph = Graph()
    carried, _ = _placeholders(graph, given, additional)
    example = carried[0].meta["example_value"]

    def call(function: Any, *arguments: Any) -> Node:
        node = graph.call_function(function, arguments)
        node.meta["example_value"] = example
        return node

    stays = call(torch.logical_not, carried[0])
    if ends.stays_if:
        stays = call(torch.logical_not, stays)
    if ends.turns_left is not None:
        stays = call(torch.logical_and, stays, call(torch.lt, carried[-1], ends.turns_left))
    if ends.more is not None:
        stays = call(torch.logical_and, stays, carried[ends.more])
    for each in ends.exits:
        stays = call(torch.logical_and, stays, call(torch.logical_not, carried[each]))
    graph.output(stays)
    return graph


def _body_graph(body: Body, given: Sequence[VariableTracker], additional: Sequence[Proxy]) -> Graph:
    graph = Graph()
    carried, others = _placeholders(graph, given, additional)
    known: dict[Node, Node] = {}
    for proxy, node in zip(additional, others, strict=True):
        known[proxy.node] = node
    first_changed = 1 + len(body.values)
    copies = [
        _copied(graph, carried[first_changed + number], outer)
        for number, outer in enumerate(body.changed)
    ]
    for outer, inner in body.trace.lifted.items():
        number = body.change_of(outer)
        known[inner.node] = known[outer.node] if number is None else copies[number]
    for proxy, node in zip(body.entered, carried[1:], strict=False):
        known[proxy.node] = node
    for node in body.trace.graph.nodes:
        if node not in known:
            known[node] = graph.node_copy(node, known.__getitem__)
    results: list[Any] = []
    for value in (body.predicate, *body.values):
        if isinstance(value, TensorVariable):
            copy = graph.call_method("clone", (known[value.as_proxy().node],))
            copy.meta["example_value"] = example_of(value)
            results.append(copy)
        elif isinstance(value, SymNodeVariable):
            results.append(known[value.as_proxy().node])
        else:
            results.append(value.as_python_constant())
    results.extend(copies)
    if len(given) > len(results):
        counted = graph.call_function(torch.add, (carried[-1], 1))
        counted.meta["example_value"] = carried[-1].meta["example_value"]
        results.append(counted)
    graph.output(tuple(results))
    return graph


def _copied(graph: Graph, node: Node, outer: Proxy) -> Node:
    copy = graph.call_method("clone", (node,))
    copy.meta["example_value"] = outer.node.meta["example_value"]
    return copy
