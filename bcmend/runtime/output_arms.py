"""What only the output of an arm reads is computed when it is delivered, and not in the graph.

An arm that is seldom taken may compute much for a message: means, largest values, whole tensors. In
the graph all of it would be computed at every call. Where the values of the moment can be had later
too, a record keeps what the arm reads, and a graph of its own that the delivery runs (``late``).

Reads the trace of an arm and the records in it; adds to the main graph no more than outputs. What
an arm reads lives until the delivery then, so there is a limit to what one trace keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch._dynamo.variables import (
    NestedUserFunctionVariable,
    TensorVariable,
    TupleVariable,
)
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.tensor import SymNodeVariable
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Graph, Node, Proxy
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from bcmend.runtime import (
    calls,
    containers,
    copies,
    depth,
    late,
    scalars,
    settings,
    sinks,
    snapshots,
    undo,
    watches,
)
from bcmend.runtime.arm_graphs import is_of_a_transform, requires_grad
from bcmend.runtime.arms import ArmTrace
from bcmend.runtime.costs import bytes_of
from bcmend.runtime.merge import Merger, Pair, constant, example_of, is_made_inside
from bcmend.runtime.operations import AUTOCAST, Hazards, is_in_place, storage_of
from bcmend.runtime.per_trace import kept
from bcmend.runtime.sinks import Draft
from bcmend.runtime.sites import LiveSite
from bcmend.runtime.unread import close_over

__all__ = ["KEPT_AT_MOST", "inputs_of_records", "take_out_unread"]

#: Bytes of tensors that one trace keeps so that nothing has to be computed of them.
KEPT_AT_MOST: Final = 2**25


class _CannotWait(Exception):
    """A value that has to be computed in the graph."""


def inputs_of_records(
    tx: Any, branch: LiveSite, merger: Merger, arm: ArmTrace, hazards: Hazards
) -> list[VariableTracker | None]:
    """Return what the records of ``arm`` are given, with values that the delivery computes.

    ``None`` for a record without such values, or whose values the graph has to compute. The
    ``merger`` brings what else the arm has made into the main trace.
    """
    if branch.branch != "auto" or not _may_wait(tx, arm, hazards):
        return [None for _ in arm.records]
    return [_inputs_of(tx, merger, arm, hazards, draft) for draft in arm.records]


def _may_wait(tx: Any, arm: ArmTrace, hazards: Hazards) -> bool:
    """Whether what ``arm`` computes may be computed later, for all that it does.

    What may fail has to fail where it stands, and draws and changes have to be made there.
    """
    outside = {*map(storage_of, undo.examples_of(outer.node for outer in arm.lifted))}
    does_nothing_else = not (
        hazards.partial
        or hazards.random
        or arm.effects.tensors
        or not outside.isdisjoint(hazards.writes)
    )
    return (
        does_nothing_else
        and not arm.asserted
        and not depth.is_in_an_arm(tx)
        and tx.output.current_tracer.parent is None
        and settings.autocast_is_as_entered(tx.output)
        and torch._C._functorch.peek_interpreter_stack() is None
        and not any(map(is_of_a_transform, arm.graph.nodes))
    )


def _inputs_of(
    tx: Any, merger: Merger, arm: ArmTrace, hazards: Hazards, draft: Draft
) -> VariableTracker | None:
    site = draft.site
    waits = (draft.is_statement or draft.is_trial) and not draft.raises
    if not waits or site.computes_ahead or not sinks.shows_moments(tx, site):
        return None
    collected = _Collected(tx, merger, arm)
    try:
        collected.note(draft.inputs)
        if not collected.nodes:
            return None
        graph, read = _graph_of(arm, hazards, collected.nodes)
        given = [_as_now(tx, each) for each in read]
        _require_small(tx, read)
    except _CannotWait:
        return None

    def compute_ahead() -> None:
        site.computes_ahead = True

    for example in undo.examples_of(outer.node for outer in read):
        watches.add(tx, example, compute_ahead)
    return collected.replaced(draft.inputs, late.add(graph), TupleVariable(given))


def take_out_unread(arm: ArmTrace, hazards: Hazards, pairs: Iterable[Pair]) -> None:
    """Take out of the graph of an arm what none of ``pairs`` needs."""
    if _has_effects(arm, hazards):
        return
    values = [value for pair in pairs for value in (pair.then_value, pair.else_value)]
    nodes = {value.as_proxy().node for value in values if value is not None}
    for node in reversed(arm.graph.nodes):
        if node.op != "placeholder" and not node.users and node not in nodes:
            arm.graph.erase_node(node)


@dataclass(slots=True, eq=False)
class _Collected:
    """The values of an arm that a record holds; ``nodes`` are their places in the arm's graph."""

    tx: Any
    merger: Merger
    arm: ArmTrace
    nodes: list[Node] = field(default_factory=list)

    def note(self, value: VariableTracker) -> None:
        """Collect what ``value`` holds. Raises ``_CannotWait`` for a value in another object."""
        value = value.realize()
        if hasattr(value, "adopt_into"):  # a value that has one form on each side of a branch
            raise _CannotWait
        node = self._node_of(value)
        if node is not None:
            if node not in self.nodes:
                self.nodes.append(node)
            return
        items = containers.items_in(value)
        if items is None:
            snapshots.visit(self._require_outside, [value], self.tx.output.side_effects)
            return
        for item in items:
            self.note(item)

    def _require_outside(self, value: VariableTracker) -> None:
        is_function = type(value) is NestedUserFunctionVariable  # such as makes the call
        is_made = is_made_inside(value) and not is_function
        if hasattr(value, "adopt_into") or is_made or self._is_inside(value):
            raise _CannotWait

    def _is_inside(self, value: VariableTracker) -> bool:
        is_value = isinstance(value, (TensorVariable, SymNodeVariable))
        return is_value and value.as_proxy().node.graph is self.arm.graph

    def _node_of(self, value: VariableTracker) -> Node | None:
        """Return where the arm computes a tensor, or the tensor that a number is in."""
        if not self._is_inside(value):
            return None
        tensor: Any = value
        if isinstance(value, SymNodeVariable):
            tensor = scalars.tensor_behind(self.tx, value.as_proxy())
        if type(tensor) is not TensorVariable or not _is_plain(example_of(tensor)):
            raise _CannotWait
        node: Node = tensor.as_proxy().node
        return node

    def replaced(
        self, value: VariableTracker, graph: int, given: VariableTracker
    ) -> VariableTracker:
        """Return a record's value with the tuples of ``late`` in it."""
        value = value.realize()
        node = self._node_of(value)
        if node is not None:
            facts = graph, self.nodes.index(node), isinstance(value, SymNodeVariable)
            return TupleVariable([constant(late.MARK), *map(constant, facts), given])
        items = containers.items_in(value)
        if items is None:
            return self.merger.adopt(value)([])
        return containers.made_of(value, [self.replaced(item, graph, given) for item in items])


def _is_plain(example: Any) -> bool:
    return isinstance(example, FakeTensor) and example.layout is torch.strided


def _has_effects(arm: ArmTrace, hazards: Hazards) -> bool:
    """Whether the order of operations matters for more than what they read of each other."""
    nodes = [node for node in arm.graph.nodes if node.op != "placeholder"]
    return bool(hazards.writes) or any(
        node.target in AUTOCAST or is_in_place(node) or node.is_impure() for node in nodes
    )


def _graph_of(
    arm: ArmTrace, hazards: Hazards, results: Sequence[Node]
) -> tuple[Graph, list[Proxy]]:
    """Return a graph that computes ``results``, and what it reads of the main trace, in order."""
    wanted = set(arm.graph.nodes)
    if not _has_effects(arm, hazards):
        wanted = set()
        close_over(wanted, list(results))
    if any(node.op == "get_attr" for node in wanted):
        raise _CannotWait
    graph, known, read = Graph(), dict[Node, Node](), list[Proxy]()
    for outer, inner in arm.lifted.items():
        if inner.node in wanted:
            known[inner.node] = graph.placeholder(f"given_{len(read)}")
            read.append(outer)
    for node in arm.graph.nodes:
        if node in wanted and node not in known:
            known[node] = graph.node_copy(node, known.__getitem__)
    graph.output(tuple(known[node] for node in results))
    return graph, read


def _as_now(tx: Any, outer: Proxy) -> VariableTracker:
    """Return what a record keeps of a value that an arm reads."""
    example = outer.node.meta.get("example_value")
    if isinstance(example, torch.SymInt) and not free_unbacked_symbols(example):
        return SymNodeVariable.create(tx, outer, example)
    if not _is_plain(example):
        raise _CannotWait
    value: TensorVariable = calls.variable_of(tx, outer)
    if copies.lies_in_differentiable(value):
        raise _CannotWait
    has_gradient = torch.is_grad_enabled() and requires_grad(outer)
    return calls.method(tx, "detach", outer) if has_gradient else value


def _require_small(tx: Any, read: Iterable[Proxy]) -> None:
    """Raise ``_CannotWait`` if a trace would keep too much that would be freed otherwise."""
    known: dict[int, float] = kept(tx.output, "late", dict)
    held = {*map(storage_of, undo.examples_of(tx.output.placeholders))}
    examples = undo.examples_of(outer.node for outer in read)
    fresh = {storage_of(each): bytes_of(each) for each in examples if storage_of(each) not in held}
    if sum({**known, **fresh}.values()) > KEPT_AT_MOST:
        raise _CannotWait
    known.update(fresh)
