"""What a graph computes of numbers out of tensors that nobody reads.

Beside each number that traced code takes out of a tensor the graph holds the tensor (``scalars``).
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Set
from typing import Any, Final

import torch
from torch.fx import Graph, Node

from bcmend import meta_keys
from bcmend.dynamo import compat
from bcmend.dynamo.fx_graph import close_over
from bcmend.dynamo.shape_env import symbols_in

ORDERS: Final = frozenset([operator.gt, operator.ge, operator.lt, operator.le])
COMPARISONS: Final = ORDERS | {operator.eq, operator.ne}
STEPS: Final[dict[Any, Any]] = {
    operator.add: operator.add,
    operator.iadd: operator.add,
    operator.sub: operator.sub,
    operator.isub: operator.sub,
}
NEGATIONS: Final = frozenset([operator.not_, torch.sym_not])
_CASTS: Final = frozenset([torch.sym_float, torch.sym_ite])
_RANGE: Final = compat.ASSERT_SCALAR


def are_made_in(graph: Graph) -> bool:
    """Return whether a data-dependent number is made in a graph."""
    return any(symbols_taken(node) for node in graph.nodes)


def drop_unread(graph: Graph, assumed: Set[Any] = frozenset()) -> bool:
    """Remove numbers, comparisons of them and tensors beside them that nobody reads.

    A number stays while another value is described by it, or if something was assumed of its
    symbol, which the graph asserts. Return whether there were any.
    """
    droppable = _droppable(graph)
    read = {node for node in graph.nodes if node not in droppable}
    described = {symbol for node in read for symbol in symbols_of_form(node)}
    wanted = [node for node in droppable if symbols_taken(node) & described]
    wanted += [node for node in droppable if is_item(node) and symbols_taken(node) & assumed]
    close_over(read, [*read, *wanted])
    for node in droppable:
        if node.target is _RANGE:  # torch's note of what it knows of a number
            numbers: set[Node] = set()
            close_over(numbers, [node])
            if any(is_item(each) for each in numbers & read):
                close_over(read, [node])
    unread = [node for node in reversed(graph.nodes) if node not in read]
    for node in unread:
        graph.erase_node(node)
    return bool(unread)


def _droppable(graph: Graph) -> dict[Node, None]:
    """Return the nodes, in order, that do nothing but compute a value about numbers."""
    found: dict[Node, None] = {}
    for node in graph.nodes:
        if meta_keys.BESIDE_NUMBER in node.meta or is_item(node) or _is_about_numbers(node, found):
            found[node] = None
    return found


def is_item(node: Node) -> bool:
    return node.op == "call_method" and node.target == "item" and bool(symbols_taken(node))


def _is_about_numbers(node: Node, numbers: Mapping[Node, None]) -> bool:
    if node.op != "call_function" or not any(each in numbers for each in node.all_input_nodes):
        return False
    if isinstance(node.meta.get("example_value"), torch.Tensor):
        return False
    if node.target is _RANGE:
        return not node.meta.get("_fx_runtime_assert_preserve", False)  # the user's own
    return any(node.target in kind for kind in (COMPARISONS, NEGATIONS, _CASTS, STEPS))


def symbols_taken(node: Node) -> set[Any]:
    """Return the unbacked symbols of a number."""
    example = node.meta.get("example_value")
    is_number = isinstance(example, (torch.SymInt, torch.SymFloat, torch.SymBool))
    return symbols_in(example) if is_number else set()


def symbols_of_form(node: Node) -> set[Any]:
    """Return the unbacked symbols in the form of a tensor."""
    example = node.meta.get("example_value")
    return symbols_in(example) if isinstance(example, torch.Tensor) else set()
