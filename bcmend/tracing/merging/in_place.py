"""Changes in place of tensors that outlive an arm, made by the main trace instead.

Plans, for each tensor ``t`` of the main trace that an arm changes, a copy for the arm to work on,
one more pair of values to merge, and a ``t.copy_`` of the merged value at the end. That copy counts
as a change even where the side is not taken. Dynamo runs each operation of an arm on the fake
tensors of the main trace, so that these have the history of gradients that the changes give them.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node, Proxy

from bcmend import meta_keys
from bcmend.dynamo import compat, frames, fx_graph, snapshots
from bcmend.dynamo.values import TensorValue, Value, example_of
from bcmend.tracing.deopt import kept_for_backward
from bcmend.tracing.effects import change_counts, memory_form
from bcmend.tracing.effects.hazards import Hazards
from bcmend.tracing.effects.operator_runs import (
    storage_of,
    storages_of,
    target_name,
    tensors_of,
)
from bcmend.tracing.gradients.histories import saved_for_backward
from bcmend.tracing.merging import shared_inputs
from bcmend.tracing.merging.merge import Pair
from bcmend.tracing.merging.shared_memory import (
    enter_as_views,
    example_behind,
    is_among,
    lifted_of,
    memory_of,
)
from bcmend.tracing.sites.refusal import HalfWritten, Refusal
from bcmend.tracing.speculation.arms import ArmTrace


@dataclass(frozen=True, slots=True)
class InPlace:
    """One tensor of the main trace that an arm changes.

    Attributes:
        outer: the tensor.
        pair: what it holds after each side.
        in_history: whether gradients flow through the change.
        counted: whether eager counts it as a change of the tensor, so that a backward fails that
            has saved the tensor. Running statistics and ``x.data`` are changed without.
    """

    outer: Proxy
    pair: Pair
    in_history: bool
    counted: bool


def plan_in_place(
    tx: compat.Tracer, arms: tuple[ArmTrace, ArmTrace], hazards: Sequence[Hazards]
) -> list[InPlace]:
    """Plan the changes in place of both arms. Raises ``Refusal``."""
    for arm in arms:
        _require_no_overlap(arm)
    written = frozenset[int]().union(*(found.writes for found in hazards))
    behind = enter_as_views(tx, arms, written)
    changed = [
        _once_each(
            behind.get(id(example_behind(each)), each) for each in _changed(arm, found.writes)
        )
        for arm, found in zip(arms, hazards, strict=True)
    ]
    outers = _once_each(outer for proxies in changed for outer in proxies)
    if not outers:
        return []
    for arm, found, proxies in zip(arms, hazards, changed, strict=True):
        for outer in proxies:
            _require_own_memory(arm, outer)
            _require_same_form(arm, outer, memory_of(outer) in found.reshapes)
    _require_apart(outers)
    _require_arms_apart(arms)
    for arm in arms:
        _require_given_alone(arm)
    _require_unread_before(tx, outers)
    shared_inputs.note_changed(tx, outers, arms)
    counted = [each for arm in arms for each in arm.effects.tensors if _is_counted(arm, each)]
    for outer in outers:
        if is_among(outer, counted):
            _require_not_saved(tx, example_behind(outer), arms)
    return [
        InPlace(
            outer,
            Pair(*(_final(tx, outer, arm) for arm in arms)),
            any(_history_changed(arm, outer) for arm in arms),
            is_among(outer, [*behind.values(), *counted]),
        )
        for outer in outers
    ]


def _changed(arm: ArmTrace, writes: frozenset[int]) -> list[Proxy]:
    """Return what the arm changes: as versions count, and as the operators say."""
    # ``x.data`` has a count of its own, and normalisation does not count at all.
    return _once_each([*arm.effects.tensors, *lifted_of(arm, writes)])


def _require_no_overlap(arm: ArmTrace) -> None:
    """Refuse a write that eager execution refuses, for memory that is written and read, or twice.

    A graph that has both sides makes it whichever is taken, and a compiled one never refuses it.
    """
    for node in filter(_writes, arm.graph.nodes):
        given = [each.meta.get("example_value") for each in node.all_input_nodes]
        tensors = [each for each in given if isinstance(each, torch.Tensor)]
        if not tensors or any(each.layout is not torch.strided for each in tensors):
            continue
        target = _region(node, tensors[0])
        if memory_form.repeats_an_item(target):
            raise Refusal("arm-effects", "a tensor that overlaps itself is changed in place")
        if any(memory_form.is_partly_in(each, target) for each in tensors[1:]):
            raise Refusal("arm-effects", "a write to memory that is read in another place")


def _region(node: Node, target: torch.Tensor) -> torch.Tensor:
    """Return the part of a tensor that a node writes to, if it is known."""
    if node.target is not operator.setitem or node.args[0] is not node.all_input_nodes[0]:
        return target
    index: Any = node.args[1]
    is_given = any(each not in (node.args[0], node.args[2]) for each in node.all_input_nodes)
    is_given |= not all(isinstance(size, int) for size in target.size())
    if is_given or any(isinstance(each, torch.Tensor) for each in compat.tree_leaves(index)):
        return target
    with torch.no_grad():
        part: torch.Tensor = target.detach()[index]
    return part


def _is_counted(arm: ArmTrace, outer: Proxy) -> bool:
    """Return whether more has changed a tensor than what lowerings in the arm wrote uncounted."""
    entry = arm.entries.get(outer)
    return entry is None or change_counts.counted(entry.example) != entry.count


def _once_each(outers: Iterable[Proxy]) -> list[Proxy]:
    """Drop further names of the same tensor."""
    return list({id(example_behind(outer)): outer for outer in outers}.values())


def _final(tx: compat.Tracer, outer: Proxy, arm: ArmTrace) -> Any:
    """Return a tensor of the main trace as an arm sees it."""
    example = example_behind(outer)
    names = (inner for other, inner in arm.lifted.items() if example_behind(other) is example)
    return fx_graph.variable_of(tx, next(names, outer))


def _require_own_memory(arm: ArmTrace, outer: Proxy) -> None:
    example, storage = example_behind(outer), memory_of(outer)
    if any(example_behind(other) is not example for other in lifted_of(arm, {storage})):
        raise Refusal(
            "arm-effects", "a tensor is changed in place, and the arm reads another of its memory"
        )
    for value in _values_of(arm):
        node, left = value.as_proxy().node, example_of(value)
        if node.graph is not arm.graph and left is not example and storage_of(left) == storage:
            raise Refusal(
                "arm-effects",
                "a tensor is changed in place, and the arm leaves another of its memory",
            )


@dataclass(frozen=True, slots=True)
class Given:
    """A store to ``tensor.data`` in an arm, which was written as a change of the tensor.

    Attributes:
        memory: of the tensor, and of what it was given.
        views: what the arm had read of the memory of the tensor.
    """

    memory: tuple[int, int]
    views: frozenset[Node]


def _require_given_alone(arm: ArmTrace) -> None:
    """Refuse ``tensor.data = value`` if it can be seen that the memory is not that of the value."""
    nodes = list(arm.graph.nodes)
    for place, node in enumerate(nodes):
        given = node.meta.get(meta_keys.GIVEN)
        if given is None:
            continue
        later = nodes[place + 1 :]
        written = frozenset[int]().union(*map(_writes, later))
        is_left = any(storage_of(example_of(each)) == given.memory[1] for each in _values_of(arm))
        is_read = any(not given.views.isdisjoint(each.all_input_nodes) for each in later)
        if is_left or is_read or not written.isdisjoint(given.memory):
            raise Refusal(
                "arm-effects", "a tensor gets the memory of another one that is used further"
            )


def _writes(node: Node) -> frozenset[int]:
    hazards: Hazards | None = node.meta.get(meta_keys.HAZARDS)
    return frozenset() if hazards is None else hazards.writes


def _values_of(arm: ArmTrace) -> list[TensorValue]:
    """Return the tensors that an arm leaves behind."""
    found: list[TensorValue] = []

    def collect(value: Value) -> None:
        if type(value) is compat.TensorVariable:
            found.append(value)

    after = [change.after["items"] for change in arm.effects.containers]
    left = [[*items.values()] if isinstance(items, dict) else [*items] for items in after]
    snapshots.visit(collect, [arm.result, *arm.effects.attributes.values(), *left])
    return found


def _require_same_form(arm: ArmTrace, outer: Proxy, reshaped: bool) -> None:
    """Refuse a tensor whose change is more than one of its contents."""
    example, entry = example_behind(outer), arm.entries.get(outer)
    if not isinstance(example, compat.FakeTensor):
        raise Refusal("arm-effects", "a tensor of a special kind is changed in place")
    if reshaped or entry is None or entry.form_changed:
        raise Refusal("arm-effects", "a tensor gets another form in place")
    if example.layout is not torch.strided:
        raise Refusal("arm-effects", "a sparse tensor is changed in place")
    if memory_form.may_overlap_itself(example):
        raise Refusal("arm-effects", "a tensor that overlaps itself is changed in place")
    if not torch.is_grad_enabled():
        return
    base = example._base
    is_of_a_leaf = base is not None and base.is_leaf and base.requires_grad
    if is_of_a_leaf and _history_changed(arm, outer):
        raise Refusal(
            "arm-effects", "a view of a tensor that requires gradients is changed in place"
        )
    if entry.gained_gradients and _outlives_the_graph(outer):
        raise Refusal(
            "arm-effects", "a tensor that outlives the call gets a history of gradients in place"
        )


def _outlives_the_graph(outer: Proxy) -> bool:
    storage = memory_of(outer)
    return any(
        node.op in ("placeholder", "get_attr") and storage in storages_of(node)
        for node in outer.node.graph.nodes
    )


def _history_changed(arm: ArmTrace, outer: Proxy) -> bool:
    storage = memory_of(outer)
    return any(
        entry.history_changed
        for entry in arm.entries.values()
        if storage_of(entry.example) == storage
    )


def _require_apart(outers: Sequence[Proxy]) -> None:
    """Refuse two views of one tensor: changed on different sides, one would undo the other."""
    if len(set(map(memory_of, outers))) < len(outers):
        raise Refusal("arm-effects", "two tensors that share memory are changed in place")


def _require_arms_apart(arms: tuple[ArmTrace, ArmTrace]) -> None:
    """Refuse a history that the arm traced last does not make, but may have seen."""
    first, last = arms
    entries = first.entries.items()
    gained = {memory_of(outer) for outer, entry in entries if entry.gained_gradients}
    made = [outer for outer, entry in last.entries.items() if entry.gained_gradients]
    if any(not is_among(outer, made) for outer in lifted_of(last, gained)):
        raise Refusal("arm-effects", "a tensor gets a history of gradients in place on one side")


def _require_unread_before(tx: compat.Tracer, outers: Iterable[Proxy]) -> None:
    """Refuse a parameter behind a graph break: an operation before it may have kept it.

    What is written back on either side counts as a change, with which such a backward fails.
    """
    code = tx.output.root_tx.f_code
    if not torch.is_grad_enabled() or frames.resumed(code) is code:
        return
    written = set(map(memory_of, outers))
    for node in tx.output.graph.find_nodes(op="placeholder"):
        is_written = not written.isdisjoint(storages_of(node))
        if is_written and any(each.requires_grad and each.is_leaf for each in tensors_of(node)):
            raise Refusal("arm-effects", "a parameter is changed in place behind a graph break")


def _require_not_saved(
    tx: compat.Tracer, example: torch.Tensor, arms: tuple[ArmTrace, ArmTrace]
) -> None:
    """Refuse a tensor that the backward of an earlier operation reads."""
    if not torch.is_grad_enabled():
        return
    storage = storage_of(example)
    starts = [
        entry.history for arm in arms for entry in arm.entries.values() if entry.example is example
    ]
    nodes = tx.output.graph.nodes
    operator = operator_given(nodes, {storage})
    if operator:
        raise Refusal("arm-effects", f"{operator} may keep a tensor that is changed in place")
    for node in nodes:
        starts += [tensor.grad_fn for tensor in tensors_of(node) if storage_of(tensor) != storage]
    for saved in saved_for_backward(starts):
        if saved is None or storage_of(saved) == storage:
            raise Refusal(
                "arm-effects", "a tensor is changed in place that an earlier operation has kept"
            )


def operator_given(nodes: Iterable[Node], memory: Collection[int]) -> str:
    """Return the first operator with graphs of its own that is given such memory, or nothing."""
    for node in nodes:
        is_opaque = isinstance(node.target, compat.HigherOrderOperator)
        if is_opaque and any(
            not storages_of(each).isdisjoint(memory) for each in node.all_input_nodes
        ):
            return target_name(node)
    return ""


def outer_form(value: Value, arms: Sequence[ArmTrace]) -> Value:
    """Return the tensor of the main trace that ``value`` is, if an arm has another name for it."""
    # ``x += 1`` gives ``x`` a new node in the arm's graph, but leaves it the same object.
    if type(value) is not compat.TensorVariable:
        return value
    for arm in arms:
        if value.as_proxy().node.graph is arm.graph:
            for outer in arm.lifted:
                if example_behind(outer) is example_of(value):
                    return value.clone(proxy=outer)
    return value


def write_back(tx: compat.Tracer, changes: Sequence[InPlace], finals: Sequence[Value]) -> None:
    """Give each changed tensor its merged contents."""
    _keep_for_backward(tx, changes)
    for change, final in zip(changes, finals, strict=True):
        try:
            if change.in_history:
                fx_graph.method(tx, "copy_", change.outer, final)
            else:
                _copy_without_history(tx, change, final)
        except compat.TorchDynamoException as error:
            # Half of the branch stands in the graph: only tracing again without it helps.
            raise HalfWritten(str(error).strip().splitlines()[0]) from error


def _copy_without_history(tx: compat.Tracer, change: InPlace, final: Value) -> None:
    gradients, target = torch.is_grad_enabled(), change.outer
    if gradients:
        _set_grad_enabled(tx, False)
    try:
        if not change.counted:
            target = fx_graph.function(tx, compat._get_data_attr, target).as_proxy()
            # The graph does not count the change, but what watches the tensor has to notice.
            change_counts.raise_count(example_behind(change.outer))
        fx_graph.method(tx, "copy_", target, final)
    finally:
        if gradients:
            _set_grad_enabled(tx, True)


def _keep_for_backward(tx: compat.Tracer, changes: Sequence[InPlace]) -> None:
    """Have what was computed from a tensor saved for backward, not recomputed from its new self."""
    # The partitioner of AOTAutograd takes an argument for something that stays as it is, also one
    # that the graph changes (https://github.com/pytorch/pytorch/pull/197039).
    if not torch.is_grad_enabled():
        return
    storages = {memory_of(change.outer) for change in changes}
    kept_for_backward.keep(tx.output.graph.nodes, storages)


def _set_grad_enabled(tx: compat.Tracer, enabled: bool) -> None:
    tx.output.create_node("call_function", compat._set_grad_enabled_now, (enabled,), {})
    compat._set_grad_enabled_now(enabled)
