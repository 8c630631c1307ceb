"""Tensors that hold some of the numbers from 0 up to a bound, each once, in ascending order.

``nonzero`` and ``torch.where`` return that for a mask of one dimension and of known length.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.fx import Node

from bcmend.dynamo import compat, fx_graph
from bcmend.dynamo.values import TensorValue, example_of

#: Functions that are called by the names of methods.
_FUNCTIONS: Final[dict[Any, str]] = {operator.getitem: "getitem"} | {
    getattr(torch, name): name
    for name in "nonzero argwhere where reshape flatten squeeze clone".split()
}
#: Operations that change neither the numbers nor their order.
_SAME_NUMBERS: Final = frozenset(
    "reshape view flatten squeeze clone contiguous detach cpu cuda long int to".split()
)
_WIDE_ENOUGH: Final = (torch.int64, torch.int32)
_FOLLOW_AT_MOST: Final = 16


@dataclass(frozen=True, slots=True)
class IndexSet:
    """Some of the numbers below ``bound``.

    ``is_there`` is a tensor that says for each number below ``bound`` whether it is one.
    """

    bound: int
    is_there: TensorValue


def index_set(tx: compat.Tracer, variable: TensorValue) -> IndexSet | None:
    """Return what a tensor is known to hold; ``None`` where that is not known."""
    bound = _bound_of(variable.as_proxy().node)
    if bound is None or example_of(variable)._version:  # changed in place since
        return None
    flat = fx_graph.function(tx, torch.reshape, variable.as_proxy(), (1, -1))
    device = example_of(variable).device
    places = fx_graph.function(tx, torch.arange, bound, device=device)
    numbers = fx_graph.function(tx, torch.reshape, places, (-1, 1))
    same = fx_graph.function(tx, torch.eq, flat.as_proxy(), numbers.as_proxy())
    return IndexSet(bound, fx_graph.function(tx, torch.any, same.as_proxy(), 1))


def _bound_of(node: Any, follow: int = _FOLLOW_AT_MOST) -> int | None:
    if not isinstance(node, Node) or follow == 0:
        return None
    name, example = _name_of(node), node.meta.get("example_value")
    if name == "getitem":
        return _bound_of_item(node, follow)
    if not isinstance(example, torch.Tensor) or example.dtype not in _WIDE_ENOUGH:
        return None
    if name == "squeeze" and not (node.args[1:] or node.kwargs):
        return None  # a single number would have no dimension left
    if name in ("nonzero", "argwhere"):
        return None if _is_tuple(node) else _length_of_mask(node)
    return _bound_of(node.args[0], follow - 1) if name in _SAME_NUMBERS and node.args else None


def _bound_of_item(node: Node, follow: int) -> int | None:
    """Return it for ``mask.nonzero(as_tuple=True)[0]``, or the one column of ``mask.nonzero()``."""
    source, index = node.args
    if not isinstance(source, Node):
        return None
    if isinstance(source.meta.get("example_value"), torch.Tensor):
        return _bound_of(source, follow - 1) if index == (slice(None, None, None), 0) else None
    name = _name_of(source)
    is_where = name == "where" and len(source.args) == 1 and not source.kwargs
    is_index = is_where or (name == "nonzero" and _is_tuple(source))
    return _length_of_mask(source) if is_index and index == 0 else None


def _is_tuple(node: Node) -> bool:
    return not isinstance(node.meta.get("example_value"), torch.Tensor)


def _length_of_mask(node: Node) -> int | None:
    """Return the length of the mask that an operator reads, if it has one dimension."""
    mask = node.args[0] if node.args else None
    example = mask.meta.get("example_value") if isinstance(mask, Node) else None
    if not isinstance(example, torch.Tensor) or example.dim() != 1:
        return None
    return example.shape[0] if isinstance(example.shape[0], int) else None


def _name_of(node: Node) -> str:
    if node.op == "call_method":
        return str(node.target)
    return _FUNCTIONS.get(node.target, "") if node.op == "call_function" else ""
