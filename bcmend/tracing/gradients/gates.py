"""Keeps gradients out of what was computed before a branch and the side taken does not use.

In eager execution nothing flows back into it. In a merged graph zeros do, and zero times a
derivative that is infinite or not a number is not a number. What such operations are given goes
through an identity, whose backward lets gradients pass only where a path that leads to them is
live. When it runs forward the branch may not be decided yet, so the truths are handed in at the
end of the graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch.fx import Graph, GraphModule, Node

from bcmend.dynamo import compat
from bcmend.tracing.effects.hazards import unjudged
from bcmend.tracing.gradients.arm_selects import is_marked
from bcmend.tracing.gradients.gradient_flow import Flow, Inside, has_gradient
from bcmend.tracing.gradients.gradient_paths import RESULT, places_in
from bcmend.tracing.gradients.returned_predicates import in_the_main_graph

_CALLS: Final = ("call_function", "call_method", "call_module")


class Truths:
    """Which paths one run of a graph has taken; ``None`` until it has run."""

    __slots__ = ("live",)

    def __init__(self) -> None:
        self.live: Sequence[torch.Tensor] | None = None


class _Gate(torch.autograd.Function):
    """The identity; its backward gives zeros where a path is not live."""

    @staticmethod
    def forward(context: Any, truths: Truths, place: int, value: torch.Tensor) -> Any:
        context.truths, context.place = truths, place
        context.set_materialize_grads(False)
        return value.detach()  # shares memory and version with the value, and is no view of it

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor | None) -> Any:
        live = context.truths.live
        if gradient is None or live is None:  # or else the graph itself goes backward
            return None, None, gradient
        if gradient.layout is not torch.strided:  # of rows, which no derivative has multiplied
            return None, None, gradient
        stopped = live[context.place].logical_not().to(gradient.device)
        return None, None, gradient.masked_fill(stopped, 0)


def gate(truths: Truths, place: int, value: torch.Tensor) -> Any:
    """Return a tensor whose gradient passes where the path at ``place`` is live."""
    if torch.is_grad_enabled() and value.requires_grad:
        return _Gate.apply(truths, place, value)  # type: ignore[no-untyped-call]
    return value


def closed(result: torch.Tensor, truths: Truths, *live: torch.Tensor) -> torch.Tensor:
    """Return a result of a graph when it is known which paths are live."""
    truths.live = live
    return result


def insert(
    module: GraphModule, paths: Mapping[Node, int], flow: Flow, *, with_inputs: bool = False
) -> None:
    """Gate what operations are given from which a gradient may flow or not.

    ``with_inputs`` says whether inputs are gated of which no gradient is asked for otherwise; of
    the main graph those are the business of ``gradient_switch``.
    """
    graph = module.graph
    wanted = list(_wanted(graph, paths, flow, with_inputs=with_inputs))
    result = next(_results(graph), None)
    if not wanted or result is None:
        return
    numbers = {path: at for at, path in enumerate(dict.fromkeys(path for *_, path in wanted))}
    with graph.inserting_before(next(iter(graph.nodes))):
        truths = graph.call_function(Truths)
    gates: dict[tuple[Node, int], Node] = {}
    for node, source, path in wanted:
        found = gates.get((source, path))
        if found is None:
            with graph.inserting_before(node):
                found = graph.call_function(gate, (truths, numbers[path], source))
            found.meta = unjudged(source.meta)
            gates[source, path] = found
        node.replace_input_with(source, found)
    output: Any = graph.output_node()
    with graph.inserting_before(output):
        writer = _Writer(module, flow)
        live = [writer.live(path) for path in numbers]
        last = graph.call_function(closed, (result, truths, *live))
    last.meta = unjudged(result.meta)
    output.replace_input_with(result, last)
    module.recompile()


def _wanted(
    graph: Graph, paths: Mapping[Node, int], flow: Flow, *, with_inputs: bool
) -> Iterator[tuple[Node, Node, int]]:
    """Yield an operation, a tensor that it is given, and the paths back to the operation."""
    with_history = _with_history(graph)
    for node in graph.nodes:
        path = flow.paths.simplified(paths.get(node, 0)) if node.op in _CALLS else 0
        if path <= RESULT or _is_select(node) or flow.is_changed(node):
            continue
        if node.target is torch.autograd.grad:  # what it is given is what it looks for
            continue
        for source in node.all_input_nodes:
            is_gated = with_inputs and source.op == "placeholder"
            is_behind = flow.paths.simplified(paths.get(source, 0)) == path and not is_gated
            is_tensor = source in with_history and is_one_tensor(source)
            if is_tensor and not (is_behind or flow.is_changed(source)):
                yield node, source, path


def _with_history(graph: Graph) -> set[Node]:
    """Return what is computed from an input that requires gradients."""
    found: set[Node] = set()
    for node in graph.nodes:
        if node.op == "placeholder":
            example = node.meta.get("example_value")
            if isinstance(example, torch.Tensor) and example.requires_grad:
                found.add(node)
        elif has_gradient(node) and not found.isdisjoint(node.all_input_nodes):
            found.add(node)
    return found


def _is_select(node: Node) -> bool:
    return is_marked(node) and node.target is torch.where


def is_one_tensor(node: Node) -> bool:
    """Return whether a node is a plain tensor that gradients may flow into."""
    is_plain = type(node.meta.get("example_value")) is compat.FakeTensor
    return is_plain and has_gradient(node)


def _results(graph: Graph) -> Iterator[Node]:
    """Yield the results of a graph that have a gradient."""
    given: Any = graph.output_node().args[0]
    for each in given:
        if isinstance(each, Node) and each.op in _CALLS and is_one_tensor(each):
            yield each


class _Writer:
    """Adds to a graph what tells which paths are live."""

    def __init__(self, module: GraphModule, flow: Flow) -> None:
        self._module, self._flow = module, flow
        self._predicates = list(flow.predicates)
        self._known: dict[tuple[Node, Inside], Node] = {}
        self._edges: dict[int, Node] = {}

    def live(self, path: int) -> Node:
        """Return whether one of some paths is live, a 0-d boolean tensor."""
        first, *others = (self._of_edge(place) for place in places_in(path))
        for each in others:
            first = self._call(torch.logical_or, first, each)
        return first

    def _of_edge(self, place: int) -> Node:
        known = self._edges.get(place)
        if known is None:
            edge = self._flow.paths.edges[place - 1]
            known = self._predicates[edge.predicate]
            inside = self._flow.inside[known.graph]
            known = in_the_main_graph(self._module, known, inside, self._known)
            if not edge.side:
                known = self._call(torch.logical_not, known)
            if not edge.onward & RESULT:
                known = self._call(torch.logical_and, known, self.live(edge.onward))
            self._edges[place] = known
        return known

    def _call(self, target: Any, *given: Node) -> Node:
        node = self._module.graph.call_function(target, given)
        node.meta = unjudged(given[0].meta)
        return node
