"""Whose the operations of a graph are, and which memory they write to, while a frame is traced."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch.fx import Graph, GraphModule, Node

from bcmend.dynamo import compat, fx_graph
from bcmend.dynamo.values import fake_mode_of
from bcmend.meta_keys import MAY_CHANGE
from bcmend.tracing.effects.operator_runs import (
    facts_of_node,
    is_in_place,
    storages_of,
    storages_written,
)


def parts_of(node: Node) -> Sequence[Any]:
    """Return what a node gives, as far as the trace knows it."""
    example = node.meta.get("example_value")
    return example if isinstance(example, (tuple, list)) else (example,)


def storages(nodes: Iterable[Node]) -> set[int]:
    """Return the memory of the tensors that nodes give."""
    return {storage for node in nodes for storage in storages_of(node)}


def is_written(tx: compat.Tracer, known: Iterable[Node]) -> bool:
    """Return whether a tensor that nodes give has been changed in place, by whatever name."""
    memory = storages(known)
    return any(is_written_in(tx, tracer.graph, memory) for tracer in fx_graph.tracers(tx))


def is_written_in(tx: compat.Tracer, graph: Graph, memory: set[int]) -> bool:
    """Return whether some operation of a graph may change memory."""
    return any(writers_in(tx, graph, memory))


def writers_in(tx: compat.Tracer, graph: Graph, memory: set[int]) -> Iterator[Node]:
    """Yield the operations of a graph that may change memory."""
    return (node for node in graph.nodes if memory_written_by(tx, node, memory))


def sets_default(node: Node) -> bool:
    """Return whether a node sets something by which other operations differ."""
    return _may_change(node)[1]


def _may_change(node: Node) -> tuple[bool, bool]:
    """Return whether a node may write to what it is given, and whether it sets a default.

    What is behind a number is looked for often, and among all nodes: this is kept with each.
    """
    found: tuple[bool, bool] | None = node.meta.get(MAY_CHANGE)
    if found is None:
        facts = facts_of_node(node)
        is_call = node.op in ("call_function", "call_method")
        writes = is_call and (is_of_functorch(node) or facts.changes(node.args, node.kwargs))
        is_higher = is_call and isinstance(node.target, compat.HigherOrderOperator)
        found = node.meta[MAY_CHANGE] = (writes or is_higher, facts.sets_default)
    return found


def memory_written_by(tx: compat.Tracer, node: Node, memory: set[int]) -> set[int]:
    """Return the memory that a node may change: what it is given is all that it can change."""
    if not _may_change(node)[0]:
        return set()  # as most: this is asked of all that a graph computes
    return _written_by(node, fake_mode_of(tx), memory, tx.output.nn_modules)


def _written_by(
    node: Node, fake_mode: Any, memory: set[int], modules: Mapping[str, Any]
) -> set[int]:
    if not _may_change(node)[0]:
        return set()
    given = memory & storages(node.all_input_nodes)
    if given and (is_of_functorch(node) or isinstance(node.target, compat.HigherOrderOperator)):
        return given & _written_by_others(node, fake_mode, modules)
    if not (given and is_in_place(node)):
        return set()
    written = storages_written(node, fake_mode)
    return given if written is None else given & written


def _written_by_others(node: Node, fake_mode: Any, modules: Mapping[str, Any]) -> set[int]:
    """Return what operations may change, of what a node is given, that are not in its graph.

    An operator that is given graphs to run, as the sides of ``torch.cond``, does what they do. All
    of it is, where their inputs are not known, and where the same memory has another name.
    """
    given = storages(node.all_input_nodes)
    inner = [] if is_of_functorch(node) else fx_graph.graphs_given(node, modules)
    if not inner:
        return given
    written = [_inputs_written_in(each, fake_mode) for each in inner]
    operands: Any = node.args[-1] if node.target is torch.ops.higher_order.cond else ()
    counts = {len(each.graph.find_nodes(op="placeholder")) for each in inner}
    changed = {at for some in written for at in some}
    if any(at >= len(operands) for at in changed) or (changed and counts != {len(operands)}):
        return given
    return storages(operands[at] for at in changed)


def _inputs_written_in(inner: GraphModule, fake_mode: Any) -> list[int]:
    """Return the places of the inputs of a graph that it may change."""
    nodes = inner.graph.nodes
    inputs = [each for each in nodes if each.op in ("placeholder", "get_attr")]
    memory = storages(inputs)
    found = [_written_by(each, fake_mode, memory, inner._modules) for each in nodes]
    written = {storage for each in found for storage in each}
    return [at for at, each in enumerate(inputs) if not written.isdisjoint(storages([each]))]


def is_of_functorch(node: Node) -> bool:
    """Return whether a node is a step of a transform of functions."""
    return (getattr(node.target, "__module__", None) or "").startswith("torch._functorch")


_TRANSFORMS: Final = ("torch._functorch", "torch._C._functorch")


def is_of_torch(target: Any) -> bool:
    """Return whether an operation is torch's own; others may read a clock, say.

    A step of a transform, as of ``torch.vmap``, is none: there is nothing outside the transform.
    """
    if isinstance(target, (compat.OpOverload, compat.OpOverloadPacket)):
        return str(target).startswith(("aten.", "bcmend.math."))
    if isinstance(target, str):  # a method of a tensor
        return True
    module = getattr(target, "__module__", None) or "torch"
    if isinstance(target, compat.HigherOrderOperator) or module.startswith(_TRANSFORMS):
        return False
    return module.partition(".")[0] in ("torch", "_operator", "builtins")


def is_of_arrays(target: Any) -> bool:
    """Return whether an operation is a comparison or arithmetic of numpy's arrays, as new ones.

    Dynamo makes an object of each, which no other trace has.
    """
    is_of_dynamo = type(target).__module__.startswith("torch._dynamo")
    return is_of_dynamo and getattr(target, "op", None) in _OF_ARRAYS


_OF_ARRAYS: Final = (
    *(operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne),
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.neg),
)
