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
    ConstDictVariable,
    ListVariable,
    NestedUserFunctionVariable,
    TensorVariable,
    TupleVariable,
)
from torch._dynamo.variables.base import ValueMutationNew, VariableTracker
from torch._dynamo.variables.builder import get_specialized_props
from torch._dynamo.variables.tensor import SymNodeVariable
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Graph, Node, Proxy
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from bcmend.runtime import (
    calls,
    copies,
    depth,
    late,
    named_tuples,
    scalars,
    settings,
    sinks,
    snapshots,
    watches,
)
from bcmend.runtime.arm_graphs import is_of_a_transform, requires_grad
from bcmend.runtime.arms import ArmTrace
from bcmend.runtime.costs import bytes_of
from bcmend.runtime.merge import Merger, Pair, constant, is_made_inside
from bcmend.runtime.operations import AUTOCAST, Hazards, is_in_place, storage_of
from bcmend.runtime.per_trace import kept
from bcmend.runtime.sinks import Draft
from bcmend.runtime.unread import close_over

__all__ = ["KEPT_AT_MOST", "inputs_of", "may_wait", "take_out_unread"]

#: Bytes of tensors that one trace keeps so that nothing has to be computed of them.
KEPT_AT_MOST: Final = 2**25


class _CannotWait(Exception):
    """A value that has to be computed in the graph."""


def may_wait(tx: Any, arm: ArmTrace, hazards: Hazards) -> bool:
    """Whether what ``arm`` computes may be computed later, for all that it does.

    What may fail has to fail where it stands, and draws and changes have to be made there.
    """
    given = (_example(outer) for outer in arm.lifted)
    outside = {storage_of(each) for each in given if isinstance(each, torch.Tensor)}
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


def inputs_of(
    tx: Any, merger: Merger, arm: ArmTrace, hazards: Hazards, draft: Draft
) -> VariableTracker | None:
    """Return what a record of ``arm`` is given, with values that are computed when it is delivered.

    ``None`` where there are none, or the graph has to compute them. The ``merger`` brings what else
    the arm has made into the main trace.
    """
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

    for outer in read:
        example = _example(outer)
        if isinstance(example, torch.Tensor):
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
        for item in _items_of(value) or ():
            self.note(item)
        if _items_of(value) is None:
            snapshots.visit(self._require_outside, [value], self.tx.output.side_effects)

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
        if type(tensor) is not TensorVariable or not _is_plain(_example(tensor.as_proxy())):
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
        if _items_of(value) is None:
            return self.merger.adopt(value)([])
        items = [self.replaced(item, graph, given) for item in _items_of(value) or ()]
        known: Any = value
        if type(value) is TupleVariable:
            return TupleVariable(items)
        if type(value) is ListVariable:
            return ListVariable(items, mutation_type=ValueMutationNew())
        if named_tuples.is_named_tuple(value):
            return named_tuples.made_of(value, items)
        pairs = dict(zip(known.items, items, strict=True))
        return ConstDictVariable(pairs, known.user_cls, mutation_type=ValueMutationNew())


def _items_of(value: Any) -> list[VariableTracker] | None:
    """Return what a container holds in which the delivery looks for values to be computed."""
    if type(value) in (TupleVariable, ListVariable):
        return list(value.items)
    if named_tuples.is_named_tuple(value):
        return named_tuples.items_in(value)
    return list(value.items.values()) if type(value) is ConstDictVariable else None


def _example(proxy: Proxy) -> Any:
    return proxy.node.meta.get("example_value")


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
    example = _example(outer)
    if isinstance(example, torch.SymInt) and not free_unbacked_symbols(example):
        return SymNodeVariable.create(tx, outer, example)
    if not _is_plain(example):
        raise _CannotWait
    facts = get_specialized_props(TensorVariable, tx, example, None)
    value = TensorVariable(outer, **facts)
    if copies.lies_in_differentiable(value):
        raise _CannotWait
    has_gradient = torch.is_grad_enabled() and requires_grad(outer)
    return calls.method(tx, "detach", outer) if has_gradient else value


def _require_small(tx: Any, read: Iterable[Proxy]) -> None:
    """Raise ``_CannotWait`` if a trace would keep too much that would be freed otherwise."""
    known: dict[int, float] = kept(tx.output, "late", dict)
    given = (_example(Proxy(node)) for node in tx.output.placeholders)
    held = {storage_of(each) for each in given if isinstance(each, torch.Tensor)}
    examples = [each for each in map(_example, read) if isinstance(each, torch.Tensor)]
    fresh = {storage_of(each): bytes_of(each) for each in examples}
    fresh = {each: size for each, size in fresh.items() if each not in held}
    if sum({**known, **fresh}.values()) > KEPT_AT_MOST:
        raise _CannotWait
    known.update(fresh)
