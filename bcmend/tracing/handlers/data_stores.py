"""``tensor.data = value`` in an arm: the value is written to the memory that the tensor has.

Eager execution gives the tensor the memory of the value. That cannot be merged with the other side,
where the tensor keeps its own. Both hold the same items afterwards, and nobody can tell one from
the other who has neither an older view of the tensor nor the value. Whether the arm has them is
looked at here and in ``tracing/merging/in_place``, which refuses such an arm.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Final

import torch
from torch.fx import Node

from bcmend import meta_keys
from bcmend.dynamo import compat, fx_graph, handlers
from bcmend.dynamo.handlers import PASS, Answer, Call
from bcmend.dynamo.models import methods, objects
from bcmend.dynamo.values import TensorValue, constant, example_of
from bcmend.tracing.effects import memory_form, sharing
from bcmend.tracing.effects.operator_runs import storage_of, storages_of
from bcmend.tracing.merging.in_place import Given
from bcmend.tracing.sites import nesting_limits

_PURPOSE: Final = "`tensor.data = ...` in an arm"


@handlers.method(compat.SetAttrBuiltinVariable, methods.CALL_SETATTR, _PURPOSE, place=3)
def _stored(call: Call) -> Answer:
    """Answer ``tensor.data = value`` by ``tensor.data.copy_(value)``, where that is the same."""
    owner, name, value = (each.realize() for each in call.args)
    if not (name.is_python_constant() and name.as_python_constant() == "data"):
        return PASS
    if not nesting_limits.is_in_an_arm(call.tx):
        return PASS
    if not all(type(each) is compat.TensorVariable for each in (owner, value)):
        return PASS
    if owner.source is None or not _are_of_one_form(example_of(owner), example_of(value)):
        return PASS
    sharing.require_alone(call.tx, example_of(owner))
    if storage_of(example_of(owner)) == storage_of(example_of(value)):
        return constant(None)  # as of ``tensor.data += 1``
    views = _views(call.tx, example_of(owner))
    if views is None or not _is_made_in_the_arm(call.tx, value):
        return PASS
    _write(call.tx, owner, value, views)
    return constant(None)


def _are_of_one_form(owner: torch.Tensor, value: torch.Tensor) -> bool:
    """Return whether a tensor has the same size, strides and kind, with the memory of ``value``."""
    if not all(isinstance(each, compat.FakeTensor) for each in (owner, value)):
        return False
    if not owner.is_leaf or any(each.layout is not torch.strided for each in (owner, value)):
        return False
    same_kind = (owner.dtype, owner.device) == (value.dtype, value.device)
    return (
        same_kind
        and owner.dim() == value.dim()
        and all(map(compat.statically_known_true, map(operator.eq, owner.size(), value.size())))
        and compat.statically_known_true(owner.storage_offset() == value.storage_offset())
        and memory_form.has_strides_of(owner, value)
        and (owner.is_conj(), owner.is_neg()) == (value.is_conj(), value.is_neg())
    )


def _is_made_in_the_arm(tx: compat.Tracer, value: TensorValue) -> bool:
    """Return whether nothing outside of the graph being written has the memory of a tensor."""
    memory, graph = storage_of(example_of(value)), tx.output.current_tracer.graph
    made = [each for each in graph.nodes if memory in storages_of(each)]
    return bool(made) and all(each.op in ("call_function", "call_method") for each in made)


def _views(tx: compat.Tracer, example: torch.Tensor) -> list[Node] | None:
    """Return what the arm has read of the memory of a tensor; ``None`` if that may be seen later.

    That is what the main trace has of it, and what a backward reads.
    """
    memory, found = storage_of(example), []
    for tracer in fx_graph.tracers(tx):
        for node in tracer.graph.nodes:
            if memory not in storages_of(node) or node.meta["example_value"] is example:
                continue
            if tracer is not tx.output.current_tracer or any(map(_requires_grad, node.users)):
                return None
            found.append(node)
    return None if sharing.related_to(tx, example) else found


def _requires_grad(node: Node) -> bool:
    example = node.meta.get("example_value")
    return not isinstance(example, torch.Tensor) or example.requires_grad


def _write(
    tx: compat.Tracer, owner: TensorValue, value: TensorValue, views: Sequence[Node]
) -> None:
    data = objects.attribute_of(tx, owner, "data")
    detached = value.call_method(tx, "detach", [], {})
    written = data.call_method(tx, "copy_", [detached], {})
    memory = storage_of(example_of(owner)), storage_of(example_of(value))
    written.as_proxy().node.meta[meta_keys.GIVEN] = Given(memory, frozenset(views))
