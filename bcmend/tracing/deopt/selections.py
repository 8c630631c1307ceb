"""Conditions on whether anything is selected, as ``if len(indices) == 0: return None``.

The side on which nothing is selected mostly gives up early, with a result of another form. Where a
graph cannot have both sides, that side is left by a side exit.
"""

from __future__ import annotations

import operator
from typing import Any, Final

import torch
from torch.fx import Node

from bcmend.dynamo import compat, shape_env

#: So few items are as none, for a side that needs two or three.
_FEW: Final = 3
_MANY: Final = 2**20


#: Comparisons of a count with a number, as functions and as methods.
_COMPARISONS: Final = {
    name: getattr(operator, name) for name in ("eq", "ne", "gt", "ge", "lt", "le")
}
_COUNTS: Final = frozenset(["sum", "count_nonzero"])


def truth_if_empty(condition: Any) -> bool | None:
    """Return the truth of a condition where nothing is selected, if it is another with few items.

    ``None`` if the condition is not on numbers of items that the data decide, and on them alone.
    """
    truths = _of_sizes(getattr(condition, "sym_num", None))
    if isinstance(condition, (compat.TensorVariable, compat.SymNodeVariable)):
        truths = truths or _of_a_mask(condition.as_proxy().node)
    few = [not each for each in truths[:1]] * 2
    return truths[0] if truths and truths[1:] == few else None


def _of_sizes(number: Any) -> list[bool]:
    """Return the truths of a comparison of sizes for no items, for few and for many."""
    symbols = shape_env.symbols_in(number)
    if not isinstance(number, torch.SymBool) or not symbols:
        return []
    ranges = number.node.shape_env.var_to_range
    if any(ranges[each].lower != 0 for each in symbols):
        return []
    found = [number.node.expr.subs(dict.fromkeys(symbols, items)) for items in (0, _FEW, _MANY)]
    return [bool(each) for each in found] if all(each.is_Boolean for each in found) else []


def _of_a_mask(node: Node) -> list[bool]:
    """Return the same of a comparison of how many items of a mask are true."""
    if len(node.args) != 2 or node.kwargs or not isinstance(node.args[1], (int, float)):
        return []
    compared = _COMPARISONS.get(_name(node))
    if compared is None or not _is_a_count(node.args[0]):
        return []
    return [bool(compared(items, node.args[1])) for items in (0, _FEW, _MANY)]


def _is_a_count(node: Any) -> bool:
    if isinstance(node, Node) and _name(node) == "item":
        node = node.args[0]
    if not isinstance(node, Node) or _name(node) not in _COUNTS or len(node.args) != 1:
        return False
    mask = node.args[0].meta.get("example_value") if isinstance(node.args[0], Node) else None
    return isinstance(mask, torch.Tensor) and mask.dtype is torch.bool and not node.kwargs


def _name(node: Node) -> str:
    """Return the name of a function or of a method of tensors."""
    return str(getattr(node.target, "__name__", node.target))
