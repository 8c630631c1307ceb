"""Conditions on random numbers that are known before the graph runs.

``torch.rand`` gives numbers from 0, and below 1. So ``torch.rand([]) < self.layerdrop`` is false
whenever ``layerdrop`` is 0: what the arms do need not be merged then. Others are computed in front
of the graph (``numbers/ahead``). The number is drawn all the same, since later ones depend on it.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.fx import Node

from bcmend.dynamo import compat
from bcmend.dynamo.values import Value
from bcmend.tracing.numbers import filled_masks, predicates, slices
from bcmend.tracing.numbers.written_memory import is_written
from bcmend.tracing.programs import deciding_draws

_NEGATIONS: Final = ("logical_not", "bitwise_not", "invert", "__invert__", "not_")
_DRAWS: Final = (torch.rand, torch.rand_like)
#: Numbers of fewer bits are left out: what is rounded after it is drawn may be 1.
_DTYPES: Final = (torch.float32, torch.float64)


def truth_of(tx: compat.Tracer, condition: Value) -> bool | None:
    """Return the truth of a condition that has the same for all numbers that may be drawn.

    ``None`` where it has not, or is not on such numbers alone. What draws stays in the graph.
    """
    if not isinstance(condition, compat.TensorVariable | compat.SymNodeVariable):
        return None
    if condition.proxy is None:
        return None
    truth = _truth(tx, condition.as_proxy().node)
    if truth is not None:
        deciding_draws.keep(tx, predicates.as_predicate(tx, condition))
    return truth


def _truth(tx: compat.Tracer, node: Node) -> bool | None:
    node = slices.outside(tx, node)
    name = filled_masks.name_of(node)
    if name in _NEGATIONS and len(node.args) == 1 and isinstance(node.args[0], Node):
        return _negated(tx, node.args[0])
    if name not in filled_masks.SWAPPED or len(node.args) != 2 or node.kwargs:
        return None
    one, other = node.args
    if isinstance(other, Node):
        one, other, name = other, one, filled_masks.SWAPPED[name]
    if not isinstance(one, Node) or type(other) not in (int, float):
        return None
    drawn = _drawn(tx, one)
    if drawn is None or is_written(tx, [node, drawn]):
        return None
    return _for_all(name, other, drawn.meta["example_value"].dtype)


def _negated(tx: compat.Tracer, node: Node) -> bool | None:
    example = slices.outside(tx, node).meta.get("example_value")
    if not isinstance(example, torch.SymBool) and getattr(example, "dtype", None) != torch.bool:
        return None  # of numbers, bits are negated
    truth = _truth(tx, node)
    return None if truth is None else not truth


def _drawn(tx: compat.Tracer, node: Node) -> Node | None:
    """Return what draws the number that a node is."""
    found = slices.outside(tx, node)
    if found.op == "call_method" and found.target == "item" and isinstance(found.args[0], Node):
        found = slices.outside(tx, found.args[0])
    if found.op != "call_function" or found.target not in _DRAWS or "out" in found.kwargs:
        return None
    return found if found.meta["example_value"].dtype in _DTYPES else None


def _for_all(name: str, bound: Any, dtype: torch.dtype) -> bool | None:
    """Return what comparing with a bound gives for each number from 0 and below 1."""
    bounds = (bound, torch.tensor(bound, dtype=dtype).item())  # tensors round what they meet
    is_below_bound = name in ("lt", "le")
    if all(each >= 1 for each in bounds):
        return is_below_bound
    lowest = all(each <= 0 if name in ("lt", "ge") else each < 0 for each in bounds)
    return not is_below_bound if lowest else None
