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

from bcmend import meta_keys
from bcmend.dynamo import compat, fx_graph, shape_env
from bcmend.dynamo.shape_env import symbols_in
from bcmend.dynamo.values import Value
from bcmend.tracing.effects.operator_runs import facts_of_node
from bcmend.tracing.numbers import slices
from bcmend.tracing.numbers.dead_numbers import is_item
from bcmend.tracing.numbers.written_memory import is_written, parts_of
from bcmend.tracing.sites import nesting_limits


@dataclass(frozen=True, slots=True, eq=False)
class Filled:
    """A mask with an item that is true, at a version of its memory.

    ``given`` are the tensors that it is computed of, and their versions; ``None`` where one was
    changed before, so that another mask may be computed of another value.
    """

    tx: compat.Tracer
    node: Node
    version: int
    given: tuple[tuple[Any, int], ...] | None

    def counts(self) -> Iterator[Any]:
        """Give how many items it selects, of which it and equal masks were asked so far."""
        for node in (self.node, *self._equal()):
            example: Any = node.meta["example_value"]
            is_as_it_was = node is not self.node or example._version == self.version
            count = example.nonzero_memo if is_as_it_was else None
            expression = getattr(getattr(count, "node", None), "expr", None)
            if expression is not None:
                yield expression

    def _equal(self) -> Iterator[Node]:
        """Give the nodes of masks that were computed again, of tensors that are as they were."""
        given = self.given
        if given is None or any(each._version != version for each, version in given):
            return
        for tracer in fx_graph.tracers(self.tx):
            others = (each for each in tracer.graph.nodes if each.op != "placeholder")
            masks = (each for each in others if each is not self.node and _is_boolean(each))
            yield from (each for each in masks if _are_equal(self.tx, each, self.node))


def _are_equal(tx: compat.Tracer, one: Any, other: Any, depth: int = 0) -> bool:
    """Return whether two nodes, or arguments of nodes, have one value, if no tensor is changed."""
    if type(one) is not type(other):
        return False
    if isinstance(one, (tuple, list)):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(_are_equal(tx, *pair, depth) for pair in pairs)
    if isinstance(one, slice):
        first, second = ((each.start, each.stop, each.step) for each in (one, other))
        return _are_equal(tx, first, second, depth)
    if not isinstance(one, Node):
        return type(one) in _PLAIN and bool(one == other)
    one, other = slices.outside(tx, one), slices.outside(tx, other)
    if one is other:
        return True
    is_call = one.op == other.op and one.op in ("call_function", "call_method")
    if not is_call or one.target != other.target or one.kwargs or other.kwargs:
        return False
    is_comparable = depth <= _DEEPEST and _computes(one)
    return is_comparable and _are_equal(tx, one.args, other.args, depth + 1)


_DEEPEST: Final = 4
_PLAIN: Final = (int, float, bool, str, type(None), torch.dtype)


def _computes(node: Node) -> bool:
    """Return whether a node gives the same for the same, and changes nothing."""
    facts = facts_of_node(node)
    return not (facts.is_random or facts.has_hidden_state or facts.changes(node.args, node.kwargs))


def _given_to(tx: compat.Tracer, node: Node, depth: int = 0) -> Iterator[Node]:
    """Give the nodes that a mask is computed of, as far as they are compared."""
    for each in node.all_input_nodes:
        outer = slices.outside(tx, each)
        yield outer
        if depth < _DEEPEST:
            yield from _given_to(tx, outer, depth + 1)


def tell(graph: Graph, facts: Iterable[Any]) -> None:
    """Have the graph of an arm say what is known of the numbers of items that it has made.

    Later stages of compilation trace it again, with other symbols, and ask other questions.
    """
    given = symbols_in([parts_of(each) for each in graph.nodes if each.op == "placeholder"])
    counts = {count for each in facts if isinstance(each, Filled) for count in each.counts()}
    for symbol in {each for each in counts if each.is_Symbol} - given:
        found = next(((node, at) for node in graph.nodes for at in _sizes(node, symbol)), None)
        if found is None:
            continue
        node, place = found
        with graph.inserting_after(node):
            size = graph.call_method("size", (node, place))
        size.meta["example_value"] = node.meta["example_value"].size(place)
        with graph.inserting_after(size):
            told = graph.call_function(torch.sym_constrain_range, (size,), {"min": 1})
        told.meta.update({"example_value": None, meta_keys.TOLD: True})


def tell_of_counts(tx: compat.Tracer, graph: Graph) -> None:
    """Have the graph of an arm say of numbers that count the items of masks how many may be.

    ``x[: int(mask.sum())]`` counts from the end where the number is negative; Inductor asks for it
    in a backward.
    """
    for node in [each for each in graph.nodes if is_item(each)]:
        mask = _counted_by(tx, node)
        if mask is None:
            continue
        most = _most(mask)
        bounds: dict[str, Any] = {"min": 0} if most is None else {"min": 0, "max": most}
        with graph.inserting_after(node):
            told = graph.call_function(torch.sym_constrain_range, (node,), bounds)
        told.meta.update({"example_value": None, meta_keys.TOLD: True, meta_keys.HOLDS: True})


def bound_count(tx: compat.Tracer, number: compat.VariableTracker) -> None:
    """Tell torch of a number that counts the items of a mask in an arm how many these may be.

    So ``torch.randperm(80)[:count]`` has ``count`` items for a mask of 32, and no branch on
    ``count > 80`` is left.
    """
    if not isinstance(number, compat.SymNodeVariable) or not nesting_limits.is_in_an_arm(tx):
        return
    mask = _counted_by(tx, number.as_proxy().node)
    if mask is not None and (most := _most(mask)) is not None:
        shape_env.limit(number, compat.ValueRanges(0, most))


def _counted_by(tx: compat.Tracer, number: Node) -> Node | None:
    """Return the mask that has its true items counted, by a number taken out of the count."""
    given = _given(tx, number)
    if given is None or not isinstance(number.meta.get("example_value"), torch.SymInt):
        return None
    is_counted = name_of(given) in _COUNTS and bool(given.args)
    mask = given.args[0] if is_counted else None
    if not isinstance(mask, Node) or not _is_boolean(mask):
        return None
    is_exact = given.meta["example_value"].dtype is torch.int64  # others may overflow
    return mask if is_exact and not is_written(tx, [given]) else None


def _most(mask: Node) -> int | None:
    """Return how many items a mask has, if that is the same for all data."""
    count = mask.meta["example_value"].numel()
    return count if isinstance(count, int) else None


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
#: Methods that count the items of a mask that are true.
_COUNTS: Final = ("sum", "count_nonzero")
#: Methods that give what share of the items it is.
_SHARES: Final = ("mean",)
#: Methods that give a mask in numbers of another type.
_CASTS: Final = ("float", "double", "long", "int", "to", "type")
#: Types that hold the share of one item in as many as there can be.
_FINE: Final = (torch.float32, torch.float64, torch.int64, torch.int32)
#: The same comparisons with sides exchanged.
SWAPPED: Final = {"gt": "lt", "lt": "gt", "ge": "le", "le": "ge"}


def filled(tx: compat.Tracer, condition: compat.TensorVariable, truth: bool) -> Filled | None:
    """Return the mask that selects something if a condition has a truth, if there is one."""
    node = slices.outside(tx, condition.as_proxy().node)
    mask = _mask_of(tx, node, truth)
    example = None if mask is None else mask.meta.get("example_value")
    if mask is None or not isinstance(example, compat.FakeTensor) or is_written(tx, [mask]):
        return None
    nodes = list(_given_to(tx, mask))
    examples = (each.meta.get("example_value") for each in nodes)
    given = tuple((each, each._version) for each in examples if isinstance(each, torch.Tensor))
    return Filled(tx, mask, example._version, None if is_written(tx, nodes) else given)


def _mask_of(tx: compat.Tracer, node: Node, truth: bool) -> Node | None:
    """Return the mask of which a node counts the items, if some are true."""
    name = name_of(node)
    if name in ("logical_not", "invert", "bitwise_not", "__invert__"):
        given = _given(tx, node)
        return None if given is None or not _is_boolean(given) else _mask_of(tx, given, not truth)
    if name == "any" and truth:
        return _whole(tx, node)
    if name in (*_COUNTS, *_SHARES):
        return _whole(tx, node) if truth else None
    compared = _comparison(tx, node)
    least = None if compared is None else _AT_LEAST.get((compared[0], truth))
    if compared is None or least is None:
        return None
    _, counted, number = compared
    if least(number) <= 0 or name_of(counted) not in (*_COUNTS, *_SHARES):
        return None
    return _whole(tx, counted)


def _comparison(tx: compat.Tracer, node: Node) -> tuple[str, Node, Any] | None:
    """Return the name of a comparison, what it compares, and the known number with which."""
    if len(node.args) != 2 or node.kwargs:
        return None
    (one, other), name = node.args, name_of(node)
    if isinstance(other, Node) and type(one) in (int, float):
        one, other, name = other, one, SWAPPED.get(name, name)
    if not isinstance(one, Node) or type(other) not in (int, float):
        return None
    return name, slices.outside(tx, one), other


# Conditions on whether anything is selected, as ``if len(indices) == 0: return None``

#: So few items are as none, for a side that needs two or three.
_FEW: Final = 3
_MANY: Final = 2**20


def truth_if_empty(tx: compat.Tracer, condition: Value) -> bool | None:
    """Return the truth of a condition where nothing is selected, if it is another with few items.

    ``None`` if the condition is not on numbers of items that the data decide, and on them alone.
    """
    truths = _truths_of_sizes(getattr(condition, "sym_num", None))
    if isinstance(condition, (compat.TensorVariable, compat.SymNodeVariable)):
        truths = truths or _truths_of_a_count(tx, condition.as_proxy().node)
    few = [not each for each in truths[:1]] * 2
    return truths[0] if truths and truths[1:] == few else None


def _truths_of_sizes(number: Any) -> list[bool]:
    """Return the truths of a comparison of sizes for no items, for few and for many."""
    symbols = symbols_in(number)
    if not isinstance(number, torch.SymBool) or not symbols:
        return []
    ranges = number.node.shape_env.var_to_range
    if any(ranges[each].lower != 0 for each in symbols):
        return []
    found = [number.node.expr.subs(dict.fromkeys(symbols, items)) for items in (0, _FEW, _MANY)]
    return [bool(each) for each in found] if all(each.is_Boolean for each in found) else []


def _truths_of_a_count(tx: compat.Tracer, node: Node) -> list[bool]:
    """Return the same of a comparison of how many items of a mask are true."""
    compared = _comparison(tx, node)
    if compared is None or compared[0] not in {name for name, _ in _AT_LEAST}:
        return []
    name, counted, number = compared
    given = _given(tx, counted) if name_of(counted) == "item" else counted
    if given is None or name_of(given) not in _COUNTS or _whole(tx, given) is None:
        return []
    return [bool(getattr(operator, name)(items, number)) for items in (0, _FEW, _MANY)]


def _whole(tx: compat.Tracer, node: Node) -> Node | None:
    """Return the mask that a node reduces, whole, perhaps in numbers of another type."""
    given = _given(tx, node)
    while given is not None and not _is_boolean(given):
        example = given.meta.get("example_value")
        is_cast = given.op == "call_method" and given.target in _CASTS and bool(given.args)
        if not is_cast or getattr(example, "dtype", None) not in _FINE:
            return None
        before: Any = given.args[0]
        given = slices.outside(tx, before) if isinstance(before, Node) else None
    return given


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
        *(getattr(module, each) for module in (torch, operator) for each in SWAPPED),
        *(operator.eq, operator.ne, operator.invert, operator.not_, torch.eq, torch.ne),
    )
}


def name_of(node: Node) -> str:
    """Return the name of the method that does what a node does; empty for what has none here."""
    if node.op == "call_method":
        return str(node.target)
    return _FUNCTIONS.get(node.target, "") if node.op == "call_function" else ""
