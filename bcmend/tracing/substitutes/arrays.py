"""``torch.tensor(array)``, ``torch.Tensor(array)`` of a numpy array that the graph has as a tensor.

Dynamo writes ``torch.tensor`` of that tensor into the graph, at which torch warns when the graph
runs, as eager execution does not. ``torch.Tensor`` keeps the type of the array there.
``torch.sparse_coo_tensor`` of indices and values is no tensor of a graph either.
``torch.as_tensor`` of a list with tensors of one number reads those numbers, which a graph has not.
``torch.tensor`` of a range up to a number out of a tensor is ``torch.arange``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from bcmend.dynamo import compat, fx_graph
from bcmend.dynamo.handlers import PASS, Answer
from bcmend.dynamo.values import Value
from bcmend.tracing.indexing import coordinates, stacked_items
from bcmend.tracing.loops import open_ranges
from bcmend.tracing.sites import body_states
from bcmend.tracing.substitutes.dispatch import ReplacedCall, answers_to


@answers_to("tensor of array")
def _tensor(call: ReplacedCall) -> Answer:
    """Answer ``torch.tensor(array, dtype=None, device=None)``: a copy in memory of its own."""
    given = call.args[0].realize() if len(call.args) == 1 else None
    kind = _kind_of(call.kwargs)
    if kind is not None and isinstance(given, open_ranges.OpenRange):
        return _of_range(call.tx, given, kind)
    if kind is None or not isinstance(given, compat.NumpyNdarrayVariable):
        return PASS
    return fx_graph.method(call.tx, "to", given, **kind, copy=True)


def _of_range(tx: compat.Tracer, numbers: open_ranges.OpenRange, kind: dict[str, Any]) -> Answer:
    """Return the numbers of a range as a tensor of integers."""
    if not numbers.counts_up or kind.get("dtype") is not torch.int64:
        body_states.take_ahead(tx, numbers.asked_about())
        return PASS  # of no numbers torch makes a tensor of floats, unless it is told
    return fx_graph.function(tx, torch.arange, numbers.stop, **kind)


def _kind_of(named: Mapping[str, Value]) -> dict[str, Any] | None:
    """Return the type and device that arguments ask for; ``None`` where others are given."""
    if not named.keys() <= {"dtype", "device"}:
        return None
    if not all(each.is_python_constant() for each in named.values()):
        return None
    given = {name: each.as_python_constant() for name, each in named.items()}
    kind: dict[str, Any] = {name: each for name, each in given.items() if each is not None}
    kind.setdefault("device", torch.get_default_device())
    return kind


@answers_to("tensor of items")
def _tensor_of_items(call: ReplacedCall) -> Answer:
    """Answer ``torch.as_tensor(items, dtype=None, device=None)`` for tensors of one number."""
    kind = _kind_of(call.kwargs) if len(call.args) == 1 else None
    if kind is None or torch.device(kind["device"]).type != "cpu":
        return PASS
    return stacked_items.stacked(call.tx, call.args[0].realize(), kind.get("dtype")) or PASS


@answers_to("default tensor of array")
def _default_tensor(call: ReplacedCall) -> Answer:
    """Answer ``torch.Tensor(array)``: a copy of the default type."""
    if len(call.args) != 1 or call.kwargs or torch.get_default_device().type != "cpu":
        return PASS
    array = call.args[0].realize()
    if not isinstance(array, compat.NumpyNdarrayVariable):
        return PASS
    return fx_graph.method(call.tx, "to", array, dtype=torch.get_default_dtype(), copy=True)


@answers_to("coordinates")
def _coordinates(call: ReplacedCall) -> Answer:
    """Answer ``torch.sparse_coo_tensor(indices, values, size)``."""
    if len(call.args) != 3 or call.kwargs:
        return PASS
    indices, values, size = (each.realize() for each in call.args)
    return coordinates.sparse_tensor(indices, values, size) or PASS
