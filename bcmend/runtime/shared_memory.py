"""Give an arm that changes one view of a tensor, and reads another, the tensor behind both.

Reads the two traced arms and the memory that they write to; rewrites their graphs. What an arm has
of such memory becomes views of one input, the tensor that covers it all, so that a copy of this
input is a copy of all of them, and what the arm leaves in it can be written back in one piece.
Only where no gradients are recorded, since a view made anew would have another history.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch._C._autograd import CreationMeta, _get_creation_meta
from torch.fx import Node, Proxy

from bcmend.runtime.arms import ArmTrace
from bcmend.runtime.entries import Entry
from bcmend.runtime.operations import storage_of

__all__ = ["enter_as_views"]


def enter_as_views(tx: Any, arms: Iterable[ArmTrace], writes: Iterable[int]) -> dict[int, Proxy]:
    """Make the arms read what shares memory with what they write through the tensor behind it.

    Returns, by the identity of its fake tensor, what each view has become a view of.
    """
    arms, behind = list(arms), {}
    for storage in writes:
        views = [outer for arm in arms for outer in _of_memory(arm, storage)]
        base = _covering(tx, views)
        if base is None or not all(map(_can_be_a_view, _entries(arms, views))):
            continue
        for arm in arms:
            for outer in _of_memory(arm, storage):
                if _example(outer) is not _example(base):
                    behind[id(_example(outer))] = base
                    _enter_as_view(arm, outer, _entered(arm, base))
    return behind


def _example(proxy: Proxy) -> Any:
    return proxy.node.meta.get("example_value")


def _of_memory(arm: ArmTrace, storage: int) -> list[Proxy]:
    return [
        outer
        for outer in arm.lifted
        if isinstance(_example(outer), torch.Tensor) and storage_of(_example(outer)) == storage
    ]


def _entries(arms: Iterable[ArmTrace], views: Iterable[Proxy]) -> list[Entry]:
    return [arm.entries[outer] for arm in arms for outer in views if outer in arm.entries]


def _can_be_a_view(entry: Entry) -> bool:
    example = entry.example
    numbers = (*example.size(), *example.stride(), example.storage_offset())
    if entry.form_changed or entry.gained_gradients:
        return False
    if torch.is_grad_enabled() and _creation_of(example) != CreationMeta.DEFAULT:
        return False  # one of the views of which autograd lets none be changed
    return all(isinstance(number, int) for number in numbers)


def _creation_of(example: torch.Tensor) -> Any:
    return CreationMeta.DEFAULT if example._base is None else _get_creation_meta(example)


def _covering(tx: Any, views: list[Proxy]) -> Proxy | None:
    """Return the tensor of the main trace of which all ``views`` are parts; ``None`` if unknown."""
    examples = {id(_example(view)): _example(view) for view in views}
    if len(examples) < 2:
        return None
    bases = {id(base): base for base in map(_base_of, examples.values())}
    if len(bases) != 1:
        return None
    (base,) = bases.values()
    if base.layout is not torch.strided or not base.is_contiguous() or base.storage_offset() != 0:
        return None
    for node in tx.output.graph.nodes:
        if node.meta.get("example_value") is base:
            return Proxy(node, views[0].tracer)
    return None


def _base_of(example: torch.Tensor) -> torch.Tensor:
    return example if example._base is None else example._base


def _entered(arm: ArmTrace, base: Proxy) -> Node:
    """Return what stands for ``base`` in the arm; it becomes an input if nothing does yet."""
    for outer, inner in arm.lifted.items():
        if _example(outer) is _example(base):
            return inner.node
    first = next(iter(arm.graph.nodes))
    with arm.graph.inserting_before(first):
        node = arm.graph.placeholder("behind")
    node.meta["example_value"] = _example(base)
    arm.lifted[base] = Proxy(node, next(iter(arm.lifted.values())).tracer)
    arm.entries[base] = Entry.of(_example(base))
    return node


def _enter_as_view(arm: ArmTrace, outer: Proxy, base: Node) -> None:
    example, old = _example(outer), arm.lifted.pop(outer).node
    last = [node for node in arm.graph.nodes if node.op == "placeholder"][-1]
    with arm.graph.inserting_after(last):
        view = arm.graph.call_function(
            torch.as_strided,
            (base, tuple(example.size()), example.stride(), example.storage_offset()),
        )
    view.meta["example_value"] = example
    old.replace_all_uses_with(view)
    arm.graph.erase_node(old)
