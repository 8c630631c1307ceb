"""Moves what only the output of an arm reads from the graph to the delivery of the output.

Where the values at that point of the program can be computed later, a record stores what the arm
reads, and a graph of its own that the delivery runs (``bcmend.delivery.lazy_values``). What the arm
reads lives until the delivery, so there is a limit to what one trace stores.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch.fx import Graph, Node, Proxy

from bcmend import meta_keys
from bcmend.delivery import codec
from bcmend.delivery.lazy_values import GRAPHS, LazyGraph
from bcmend.dynamo import compat, frames, fx_graph, snapshots, values
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.values import TensorValue, Value, constant, example_of, fake_mode_of
from bcmend.tracing.deopt import undo_log
from bcmend.tracing.effects import watches
from bcmend.tracing.effects.costs import bytes_of
from bcmend.tracing.effects.hazards import AUTOCAST, Hazards, hazards_of, only_selects
from bcmend.tracing.effects.operator_runs import is_in_place, storage_of
from bcmend.tracing.lowering.arm_graphs import is_of_a_transform, requires_grad
from bcmend.tracing.merging.merge import Merger, Pair, is_made_inside
from bcmend.tracing.numbers import scalars
from bcmend.tracing.output import record_builder, record_settings, tensor_copies
from bcmend.tracing.output.record_builder import Draft, Kind
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.sites import encoding, nesting_limits
from bcmend.tracing.sites.phi import Phi
from bcmend.tracing.sites.refusal import NotThisWay, Refusal, attempt
from bcmend.tracing.sites.site_table import LiveSite
from bcmend.tracing.speculation.arms import ArmTrace

#: Bytes of tensors that one trace stores for the delivery. No later operation can use their
#: memory: with 16 vectors of 4 MiB, each shown by an arm that is not taken, a call takes 2.1 times
#: as long as in eager where all are stored, 2.0 times with half of them, 1.6 times with a quarter,
#: and 1.4 times where the graph computes all that might be shown.
STORED_AT_MOST: Final = 2**25


def inputs_of_records(
    tx: compat.Tracer, branch: LiveSite, merger: Merger, arm: ArmTrace, hazards: Hazards
) -> list[Value | None]:
    """Return the inputs of the records of ``arm``, with values that the delivery computes.

    ``None`` for a record without such values, or whose values the graph has to compute. The
    ``merger`` brings what else the arm has made into the main trace.
    """
    if branch.policy.branch != "auto" or not _can_be_deferred(tx, arm, hazards):
        return [None for _ in arm.records]
    return [_inputs_of(tx, merger, arm, hazards, draft) for draft in arm.records]


def _can_be_deferred(tx: compat.Tracer, arm: ArmTrace, hazards: Hazards) -> bool:
    """Return whether an arm may compute later: it cannot fail, draws and changes nothing."""
    outside = {*map(storage_of, undo_log.examples_of(outer.node for outer in arm.lifted))}
    return (
        not (hazards.random or arm.effects.tensors or arm.asserted)
        and outside.isdisjoint(hazards.writes)
        and not nesting_limits.is_in_an_arm(tx)
        and tx.output.current_tracer.parent is None
        and record_settings.autocast_is_as_entered(tx.output)
        and compat.peek_interpreter_stack() is None
        and not any(map(is_of_a_transform, arm.graph.nodes))
        and not _may_fail(tx, arm, hazards)
    )


def _may_fail(tx: compat.Tracer, arm: ArmTrace, hazards: Hazards) -> bool:
    """Return whether an operation of an arm may fail, other than for want of memory."""
    if not hazards.partial:
        return False
    fake_mode, modules = fake_mode_of(tx), tx.output.nn_modules
    doubtful = (node for node in arm.graph.nodes if meta_keys.TOLD not in node.meta)
    return any(
        hazards_of([node], fake_mode, modules).partial and not only_selects(node, fake_mode)
        for node in doubtful
    )


def _inputs_of(
    tx: compat.Tracer, merger: Merger, arm: ArmTrace, hazards: Hazards, draft: Draft
) -> Value | None:
    site = draft.site
    is_late = draft.kind in (Kind.OUTPUT, Kind.TRIAL)
    if not is_late or not site.holds(Claim.COMPUTED_LATE) or not record_builder.shows_moments(site):
        return None
    collected = _Collected(tx, merger, arm)

    def plan() -> tuple[Graph, list[Proxy], list[Value]]:
        collected.note(draft.inputs)
        if not collected.nodes:
            raise NotThisWay()
        graph, read = _graph_of(arm, hazards, collected.nodes)
        given = [_stored(tx, each) for each in read]
        _require_small(tx, read)
        return graph, read, given

    planned = attempt(plan)
    if isinstance(planned, Refusal):
        return None
    graph, read, given = planned

    for example in undo_log.examples_of(outer.node for outer in read):
        watches.add(tx, example, Finding(Claim.COMPUTED_LATE, site))
    lazy = LazyGraph(graph)
    frames.keep_with(tx, lazy)
    return collected.replaced(draft.inputs, GRAPHS.add(lazy), compat.TupleVariable(given))


def take_out_unread(arm: ArmTrace, hazards: Hazards, pairs: Iterable[Pair]) -> None:
    """Remove from the graph of an arm what none of ``pairs`` needs."""
    if _has_effects(arm, hazards):
        return
    nodes = {value.as_proxy().node for pair in pairs for value in pair.values}
    for node in reversed(arm.graph.nodes):
        if node.op != "placeholder" and not node.users and node not in nodes:
            arm.graph.erase_node(node)


@dataclass(slots=True, eq=False)
class _Collected:
    """The values of an arm that a record holds; ``nodes`` are those of the arm's graph."""

    tx: compat.Tracer
    merger: Merger
    arm: ArmTrace
    nodes: list[Node] = field(default_factory=list)

    def note(self, value: Value) -> None:
        """Collect what ``value`` holds. Raises ``Refusal`` for a value in another object."""
        value = value.realize()
        if isinstance(value, Phi):
            raise NotThisWay()
        node = self._node_of(value)
        items = values.items_in(value)
        if node is not None:
            if node not in self.nodes:
                self.nodes.append(node)
        elif items is None:
            snapshots.visit(self._require_outside, [value], self.tx.output.side_effects)
        else:
            for item in items:
                self.note(item)

    def _require_outside(self, value: Value) -> None:
        is_function = type(value) is compat.NestedUserFunctionVariable  # such as makes the call
        is_made = is_made_inside(value) and not is_function
        if isinstance(value, Phi) or is_made or self._is_inside(value):
            raise NotThisWay()

    def _is_inside(self, value: Value) -> bool:
        is_value = isinstance(value, (compat.TensorVariable, compat.SymNodeVariable))
        return is_value and value.as_proxy().node.graph is self.arm.graph

    def _node_of(self, value: Value) -> Node | None:
        """Return the node of a tensor of the arm, or of the tensor that a number came from."""
        if not self._is_inside(value):
            return None
        is_number = isinstance(value, compat.SymNodeVariable)
        tensor: Any = scalars.tensor_behind(self.tx, value.as_proxy()) if is_number else value
        if type(tensor) is not compat.TensorVariable or not _is_plain(example_of(tensor)):
            raise NotThisWay()
        return tensor.as_proxy().node

    def replaced(self, value: Value, graph: int, given: Value) -> Value:
        """Return a record's value with references to results of a lazy graph in it."""
        value = value.realize()
        node = self._node_of(value)
        if node is not None:
            facts = graph, self.nodes.index(node), isinstance(value, compat.SymNodeVariable)
            return encoding.encoded(codec.LATE, *map(constant, facts), given)
        items = values.items_in(value)
        if items is None:
            return self.merger.adopt(value)([])
        return values.made_of(value, [self.replaced(item, graph, given) for item in items])


def _is_plain(example: Any) -> bool:
    return isinstance(example, compat.FakeTensor) and example.layout is torch.strided


def _has_effects(arm: ArmTrace, hazards: Hazards) -> bool:
    """Return whether the order of an arm's operations matters beyond their data flow."""
    nodes = [node for node in arm.graph.nodes if node.op != "placeholder"]
    return bool(hazards.writes) or any(
        node.target in AUTOCAST or is_in_place(node) or node.is_impure() for node in nodes
    )


def _graph_of(
    arm: ArmTrace, hazards: Hazards, results: Sequence[Node]
) -> tuple[Graph, list[Proxy]]:
    """Return a graph that computes ``results``, and what it reads of the main trace, in order."""
    wanted: set[Node] = set()
    fx_graph.close_over(wanted, list(arm.graph.nodes if _has_effects(arm, hazards) else results))
    if any(node.op == "get_attr" for node in wanted):
        raise NotThisWay()
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


def _stored(tx: compat.Tracer, outer: Proxy) -> Value:
    """Return what a record stores of a value that an arm reads."""
    example = outer.node.meta.get("example_value")
    if isinstance(example, torch.SymInt) and not compat.free_unbacked_symbols(example):
        return compat.SymNodeVariable.create(tx, outer, example)
    if not _is_plain(example):
        raise NotThisWay()
    value: TensorValue = fx_graph.variable_of(tx, outer)
    if tensor_copies.lies_in_differentiable(value):
        raise NotThisWay()
    has_gradient = torch.is_grad_enabled() and requires_grad(outer)
    return fx_graph.method(tx, "detach", outer) if has_gradient else value


#: By storage, the bytes of tensors that a trace stores.
_STORED_BYTES: Final[Slot[dict[int, float]]] = Slot(dict, rolls_back=True)


def _require_small(tx: compat.Tracer, read: Iterable[Proxy]) -> None:
    """Raise ``Refusal`` if a trace would store too much that would be freed otherwise."""
    known = _STORED_BYTES.of(tx.output)
    held = {*map(storage_of, undo_log.examples_of(tx.output.placeholders))}
    examples = undo_log.examples_of(outer.node for outer in read)
    fresh = {storage_of(each): bytes_of(each) for each in examples if storage_of(each) not in held}
    if sum({**known, **fresh}.values()) > STORED_AT_MOST:
        raise NotThisWay()
    known.update(fresh)
