"""Give an arm that changes one view of a tensor, and reads another, the tensor behind both.

What an arm has of such memory becomes views of one input, so that a copy of this input is a copy of
all of them. Only where no gradients are recorded: a view made anew would have another history.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import torch
from torch.fx import Node, Proxy

from bcmend.dynamo import compat
from bcmend.tracing.effects import memory_form
from bcmend.tracing.effects.operator_runs import storage_of
from bcmend.tracing.sites.lifted_inputs import Entry
from bcmend.tracing.speculation.arms import ArmTrace


def enter_as_views(
    tx: compat.Tracer, arms: Iterable[ArmTrace], writes: Iterable[int]
) -> dict[int, Proxy]:
    """Make the arms read what shares memory with what they write through the tensor behind it."""
    # Returns, by the identity of its fake tensor, what each view has become a view of.
    arms, behind = list(arms), {}
    for storage in writes:
        views = [outer for arm in arms for outer in lifted_of(arm, {storage})]
        base = _covering(tx, views)
        entries = [arm.entries[outer] for arm in arms for outer in views if outer in arm.entries]
        if base is None or not all(map(_can_be_a_view, entries)):
            continue
        for arm in arms:
            for outer in lifted_of(arm, {storage}):
                if example_behind(outer) is not example_behind(base):
                    behind[id(example_behind(outer))] = base
                    _enter_as_view(arm, outer, _entered(arm, base))
    return behind


def example_behind(proxy: Proxy) -> Any:
    """Return the fake tensor behind a proxy, or the number."""
    return proxy.node.meta.get("example_value")


def memory_of(outer: Proxy) -> int:
    """Return the storage of a tensor of the main trace."""
    return storage_of(example_behind(outer))


def is_among(outer: Proxy, others: Iterable[Proxy]) -> bool:
    """Return whether a tensor is one of ``others``, by whatever name."""
    return any(example_behind(each) is example_behind(outer) for each in others)


def lifted_tensors(arm: ArmTrace) -> list[Proxy]:
    """Return the tensors of the main trace that an arm reads."""
    return [outer for outer in arm.lifted if isinstance(example_behind(outer), torch.Tensor)]


def lifted_of(arm: ArmTrace, storages: Container[int]) -> list[Proxy]:
    """Return those of them that lie in one of ``storages``."""
    return [outer for outer in lifted_tensors(arm) if memory_of(outer) in storages]


def _can_be_a_view(entry: Entry) -> bool:
    example = entry.example
    if entry.form_changed or entry.gained_gradients:
        return False
    is_recorded_view = torch.is_grad_enabled() and example._base is not None
    if is_recorded_view and compat._get_creation_meta(example) != compat.CreationMeta.DEFAULT:
        return False  # one of the views of which autograd lets none be changed
    return memory_form.reach(example) is not None


def _covering(tx: compat.Tracer, views: list[Proxy]) -> Proxy | None:
    """Return the tensor of the main trace of which all ``views`` are parts; ``None`` if unknown."""
    examples = {id(example_behind(view)): example_behind(view) for view in views}
    if len(examples) < 2:
        return None
    base, *others = (each if each._base is None else each._base for each in examples.values())
    if any(other is not base for other in others):
        return None
    if base.layout is not torch.strided or not base.is_contiguous() or base.storage_offset() != 0:
        return None
    nodes = (node for node in tx.output.graph.nodes if node.meta.get("example_value") is base)
    node = next(nodes, None)
    return None if node is None else Proxy(node, views[0].tracer)


def _entered(arm: ArmTrace, base: Proxy) -> Node:
    """Return what stands for ``base`` in the arm; it becomes an input if nothing does yet."""
    for outer, inner in arm.lifted.items():
        if example_behind(outer) is example_behind(base):
            return inner.node
    first = next(iter(arm.graph.nodes))
    with arm.graph.inserting_before(first):
        node = arm.graph.placeholder("behind")
    node.meta["example_value"] = example_behind(base)
    arm.lifted[base] = Proxy(node, next(iter(arm.lifted.values())).tracer)
    arm.entries[base] = Entry.of(example_behind(base))
    return node


def _enter_as_view(arm: ArmTrace, outer: Proxy, base: Node) -> None:
    example, old = example_behind(outer), arm.lifted.pop(outer).node
    last = [node for node in arm.graph.nodes if node.op == "placeholder"][-1]
    with arm.graph.inserting_after(last):
        view = arm.graph.call_function(
            torch.as_strided,
            (base, tuple(example.size()), example.stride(), example.storage_offset()),
        )
    view.meta["example_value"] = example
    old.replace_all_uses_with(view)
    arm.graph.erase_node(old)
