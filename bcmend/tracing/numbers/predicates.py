"""Conditions as 0-d boolean tensors: how they are made, joined, and what is selected by one."""

from __future__ import annotations

import operator
from typing import TypeGuard

import torch
from torch.fx import Proxy

from bcmend.dynamo import compat, fx_graph
from bcmend.dynamo.values import TensorValue, Value, example_of, is_unbacked
from bcmend.tracing.gradients import untaken_gradients
from bcmend.tracing.numbers import float_tensors, scalars
from bcmend.tracing.programs import deciding_draws


def is_data_dependent(value: Value) -> bool:
    """Return whether a value has a truth that depends on the data, which ``as_predicate`` gives."""
    return is_single(value) or is_unbacked(value)


def is_of_data(value: Value) -> TypeGuard[TensorValue]:
    """Return whether a value is a plain tensor, or an array of numpy: a tensor to the graph."""
    return type(value) in (compat.TensorVariable, compat.NumpyNdarrayVariable)


def is_single(value: Value) -> bool:
    """Return whether a value is a tensor, or an array, of one element."""
    return is_of_data(value) and example_of(value).numel() == 1


def as_predicate(tx: compat.Tracer, condition: Value) -> TensorValue:
    """Return the truth of a one-element tensor or symbolic number as a 0-d boolean tensor."""
    if isinstance(condition, compat.SymNodeVariable):
        proxy = condition.as_proxy()
        stored = scalars.tensor_of(tx, condition) or float_tensors.comparison(tx, proxy)
        if stored is not None:
            return stored
        if not isinstance(condition.sym_num, torch.SymBool):
            proxy = tx.output.create_proxy("call_function", operator.ne, (proxy, 0), {})
            compat.wrap_fx_proxy(tx, proxy)
        return fx_graph.function(tx, torch.scalar_tensor, proxy, dtype=torch.bool)
    value: TensorValue = condition  # type: ignore[assignment]
    if type(value) is compat.NumpyNdarrayVariable:
        value = fx_graph.variable_of(tx, value.as_proxy())
    example = example_of(value)
    if example.dim() != 0:
        value = fx_graph.method(tx, "reshape", value, ())
    if example.dtype is not torch.bool:
        value = fx_graph.method(tx, "to", value, torch.bool)  # NaN is true, as in Python
    return value


def negated(tx: compat.Tracer, predicate: TensorValue) -> TensorValue:
    return fx_graph.function(tx, torch.logical_not, predicate)


def both(tx: compat.Tracer, one: TensorValue, other: TensorValue) -> TensorValue:
    return fx_graph.function(tx, torch.logical_and, one, other)


def either(tx: compat.Tracer, one: TensorValue, other: TensorValue) -> TensorValue:
    return fx_graph.function(tx, torch.logical_or, one, other)


def chosen(tx: compat.Tracer, predicate: TensorValue, one: Proxy, other: Proxy) -> TensorValue:
    """Return ``one`` where the predicate holds and ``other`` where not, as one side of a branch."""
    device = one.node.meta["example_value"].device
    if device != example_of(predicate).device:  # else a number on the CPU would move to a GPU
        predicate = fx_graph.method(tx, "to", predicate, device=device)
    joined = _joined(tx, predicate, one, other)
    if joined is not None:
        return joined
    result = fx_graph.function(tx, torch.where, predicate, one, other)
    untaken_gradients.mark_and_examine(tx, result.as_proxy().node)
    return result


def _joined(
    tx: compat.Tracer, predicate: TensorValue, one: Proxy, other: Proxy
) -> TensorValue | None:
    """Return what ``predicate or other`` or ``predicate and one`` is, if that is what is chosen.

    Back ends compute it with vectors, and not number by number as what is selected.
    """
    examples = [each.node.meta["example_value"] for each in (one, other)]
    if any(each.dtype is not torch.bool or each.dim() for each in examples):
        return None
    node = predicate.as_proxy().node
    if one.node is node:
        return fx_graph.function(tx, torch.logical_or, predicate, other)
    if other.node is node:
        return fx_graph.function(tx, torch.logical_and, predicate, one)
    return None


def keep_deciding(tx: compat.Tracer, condition: Value) -> None:
    """Keep what draws the numbers of a condition that was computed in front of the graph."""
    if deciding_draws.note(tx, condition.as_proxy().node):
        deciding_draws.keep(tx, as_predicate(tx, condition))
