"""Masks that select something where a condition holds: ``if mask.any(): x[mask]``.

How many items a mask selects is a number of its own to torch, which does not connect it with
``mask.any()`` or ``mask.sum()``. Where the condition of a branch says that there is one at least,
that is known of the number in the arm.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.fx import Graph, Node

from bcmend.dynamo import compat
from bcmend.dynamo.shape_env import symbols_in
from bcmend.tracing.numbers import slices
from bcmend.tracing.numbers.written_memory import is_written, parts_of


@dataclass(frozen=True, slots=True, eq=False)
class Filled:
    """A mask with an item that is true, by its fake tensor, at a version of its memory."""

    example: Any
    version: int

    def count(self) -> Any:
        """Return how many items it selects; ``None`` if nobody has asked for them so far."""
        count = self.example.nonzero_memo if self.example._version == self.version else None
        return getattr(getattr(count, "node", None), "expr", None)


def tell(graph: Graph, facts: Iterable[Any]) -> None:
    """Have the graph of an arm say what is known of the numbers of items that it has made.

    Later stages of compilation trace it again, with other symbols, and ask other questions.
    """
    given = symbols_in([parts_of(each) for each in graph.nodes if each.op == "placeholder"])
    counts = [each.count() for each in facts if isinstance(each, Filled)]
    for symbol in {each for each in counts if each is not None and each.is_Symbol} - given:
        found = next(((node, at) for node in graph.nodes for at in _sizes(node, symbol)), None)
        if found is None:
            continue
        node, place = found
        with graph.inserting_after(node):
            size = graph.call_method("size", (node, place))
        size.meta["example_value"] = node.meta["example_value"].size(place)
        with graph.inserting_after(size):
            told = graph.call_function(torch.sym_constrain_range, (size,), {"min": 1})
        told.meta["example_value"] = None


def _sizes(node: Node, symbol: Any) -> Iterator[int]:
    """Give the dimensions of what an operation gives that have a symbol for their size."""
    example = node.meta.get("example_value")
    if node.op == "placeholder" or not isinstance(example, torch.Tensor):
        return
    sizes: list[Any] = list(example.shape)
    for place, size in enumerate(sizes):
        if isinstance(size, torch.SymInt) and size.node.expr == symbol:
            yield place


#: What a comparison of a number of items with a constant says if it has a truth: at least so many.
_AT_LEAST: Final[dict[tuple[str, bool], Callable[[Any], Any]]] = {
    ("gt", True): lambda number: number + 1,
    ("le", False): lambda number: number + 1,
    ("ge", True): lambda number: number,
    ("lt", False): lambda number: number,
    ("eq", True): lambda number: number,
    ("ne", False): lambda number: number,
    # A count is not negative, so that it is one or more where it is not zero.
    ("eq", False): lambda number: 1 if number == 0 else 0,
    ("ne", True): lambda number: 1 if number == 0 else 0,
}
#: The same comparisons with sides exchanged.
_SWAPPED: Final = {"gt": "lt", "lt": "gt", "ge": "le", "le": "ge"}


def filled(tx: compat.Tracer, condition: compat.TensorVariable, truth: bool) -> Filled | None:
    """Return the mask that selects something if a condition has a truth, if there is one."""
    node = slices.outside(tx, condition.as_proxy().node)
    mask = _mask_of(tx, node, truth)
    example = None if mask is None else mask.meta.get("example_value")
    if mask is None or not isinstance(example, compat.FakeTensor) or is_written(tx, [mask]):
        return None
    return Filled(example, example._version)


def _mask_of(tx: compat.Tracer, node: Node, truth: bool) -> Node | None:
    """Return the mask of which a node counts the items, if some are true."""
    name = _name_of(node)
    if name in ("logical_not", "invert", "bitwise_not", "__invert__"):
        given = _given(tx, node)
        return None if given is None or not _is_boolean(given) else _mask_of(tx, given, not truth)
    if name == "any" and truth:
        return _whole(tx, node)
    if name in ("sum", "count_nonzero"):
        return _whole(tx, node) if truth else None
    if len(node.args) != 2 or node.kwargs:
        return None
    one, other = node.args
    if isinstance(other, Node) and type(one) in (int, float):
        one, other, name = other, one, _SWAPPED.get(name, name)
    least = _AT_LEAST.get((name, truth))
    if least is None or not isinstance(one, Node) or type(other) not in (int, float):
        return None
    counted = slices.outside(tx, one)
    if least(other) <= 0 or _name_of(counted) not in ("sum", "count_nonzero"):
        return None
    return _whole(tx, counted)


def _whole(tx: compat.Tracer, node: Node) -> Node | None:
    """Return the mask that a node reduces, whole."""
    given = _given(tx, node)
    return given if given is not None and _is_boolean(given) else None


def _given(tx: compat.Tracer, node: Node) -> Node | None:
    """Return the only argument of a node."""
    if len(node.args) != 1 or node.kwargs or not isinstance(node.args[0], Node):
        return None
    return slices.outside(tx, node.args[0])


def _is_boolean(node: Node) -> bool:
    return getattr(node.meta.get("example_value"), "dtype", None) is torch.bool


#: Functions that are called, by the names of the methods that do the same.
_FUNCTIONS: Final = {
    function: function.__name__
    for function in (
        *(torch.any, torch.sum, torch.count_nonzero, torch.logical_not, torch.bitwise_not),
        *(getattr(module, each) for module in (torch, operator) for each in _SWAPPED),
        *(operator.eq, operator.ne, operator.invert, torch.eq, torch.ne),
    )
}


def _name_of(node: Node) -> str:
    if node.op == "call_method":
        return str(node.target)
    return _FUNCTIONS.get(node.target, "") if node.op == "call_function" else ""
