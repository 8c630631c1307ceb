"""What is computed of all items of a list some of which may not be there.

``len``, a jump on the list and ``append`` are answered by its model (``merging.optional_items``).
Here are ``sum``, ``torch.stack`` and ``torch.cat``, which select the items that are there.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, Final

import torch

from bcmend.dynamo import compat, fx_graph, handlers
from bcmend.dynamo.handlers import PASS, Answer, Call
from bcmend.dynamo.models import methods
from bcmend.dynamo.values import TensorValue, Value, constant, example_of
from bcmend.tracing.effects.memory_form import difference
from bcmend.tracing.merging.optional_items import OptionalItem, OptionalList
from bcmend.tracing.numbers import ahead, predicates, size_questions
from bcmend.tracing.output import deferred_exceptions
from bcmend.tracing.sites import site_table

_PURPOSE: Final = "lists whose items may not be there"


@handlers.method(
    compat.PolyfilledFunctionVariable, methods.CALL_FUNCTION, "sums of lists of some items", place=1
)
def _sum(call: Call) -> Answer:
    """Answer ``sum(items)`` and ``sum(items, start)``, where that is a tensor."""
    function, (args, kwargs) = call.owner.fn, call.args
    if function is not builtins.sum or not 1 <= len(args) <= 2 or kwargs:
        return PASS
    items, *start = (each.realize() for each in args)
    return _added_up(call.tx, items, *start) if isinstance(items, OptionalList) else PASS


def _added_up(tx: compat.Tracer, items: OptionalList, total: Value | None = None) -> Value:
    """Return ``0 + one + two``, of those that are there; or what is added to a ``total``."""
    tensors = _tensors_in(items)
    if total is not None and type(total) is not compat.TensorVariable:
        items.ask()
    are_of_one_form = _are_of_one_form([*([total] if total else []), *tensors])
    if not (are_of_one_form and (total is not None or items.is_filled(tx))):
        items.ask()
    for item, value in zip(items.all_items, tensors, strict=True):
        more = _plus(tx, constant(0) if total is None else total, value)
        if isinstance(item, OptionalItem):
            none: Any = fx_graph.function(tx, torch.zeros_like, more) if total is None else total
            more = predicates.chosen(tx, item.predicate, more.as_proxy(), none.as_proxy())
        total = more
    assert total is not None
    return total


def _plus(tx: compat.Tracer, one: Value, other: Value) -> Value:
    return compat.BuiltinVariable(operator.add).call_function(tx, [one, other], {})


def _tensors_in(items: OptionalList) -> list[TensorValue]:
    """Return all tensors that may be in a list."""
    values = [each.value if isinstance(each, OptionalItem) else each for each in items.all_items]
    tensors: list[Any] = [each.realize() for each in values]
    if not all(type(each) is compat.TensorVariable for each in tensors):
        items.ask()
    return tensors


def _are_of_one_form(tensors: Sequence[TensorValue]) -> bool:
    first, *others = map(example_of, tensors)
    return not any(difference(first, each) for each in others)


@handlers.method(compat.TorchInGraphFunctionVariable, methods.CALL_FUNCTION, _PURPOSE, place=2)
def _call_function(call: Call) -> Answer:
    """Answer ``torch.stack(items, dim)`` and ``torch.cat(items, dim)``."""
    args, kwargs = call.args
    join = _JOINS.get(call.owner.value)
    given = dict(zip(("tensors", "dim"), args, strict=False)) | kwargs
    items = given["tensors"].realize() if "tensors" in given else None
    if join is None or not isinstance(items, OptionalList):
        return PASS
    tensors = _tensors_in(items)
    if len(given) != len(args) + len(kwargs) or not given.keys() <= {"tensors", "dim"}:
        items.ask()
    if compat.can_dispatch_torch_function(call.tx, tensors, {}) or not _has_any(call.tx, items):
        items.ask()
    return join(call.tx, items, tensors, given.get("dim", constant(0)).realize())


def _has_any(tx: compat.Tracer, items: OptionalList) -> bool:
    """Ensure that there is an item: else an arm, which asserts nothing, is left by a side exit."""
    if items.is_filled(tx):
        return True
    site = site_table.site_being_traced(tx, tx.f_code, "join", "guard")
    if not deferred_exceptions.can_exit(tx, site):
        return False
    present: Any = reduce(
        partial(predicates.either, tx), [each.predicate for each in items.optional]
    )
    deferred_exceptions.make_side_exit(tx, site, predicates.negated(tx, present))
    return True


def _stacked(
    tx: compat.Tracer, items: OptionalList, tensors: Sequence[TensorValue], dim: Value
) -> Value:
    if not _are_of_one_form(tensors):
        items.ask()
    place = _place_of(dim, example_of(tensors[0]).dim() + 1, items)
    rows = [_or_zeros(tx, *each) for each in zip(items.all_items, tensors, strict=True)]
    truths = [_presence(tx, each, tensors[0]) for each in items.all_items]
    joined = _joined(tx, torch.stack, rows, place), _joined(tx, torch.stack, truths)
    found = _selected(tx, *joined, place)
    count: Any = items.length(tx)
    size: Any = example_of(found).shape[place]
    if not isinstance(size, int) and isinstance(count, compat.SymNodeVariable):
        size_questions.take_for(tx, size, count.sym_num)
    return found


def _place_of(dim: Value, dimensions: int, items: OptionalList) -> int:
    """Return the dimension along which items are joined, counted from the first."""
    place = dim.as_python_constant() if dim.is_python_constant() else None
    if type(place) is not int or not -dimensions <= place < dimensions:
        items.ask()
    return place % dimensions


def _or_zeros(tx: compat.Tracer, item: Value, value: TensorValue) -> TensorValue:
    """Return a tensor, of which no gradient flows back where it is not there."""
    if not isinstance(item, OptionalItem) or not example_of(value).requires_grad:
        return value
    zeros = fx_graph.function(tx, torch.zeros_like, value)
    return predicates.chosen(tx, item.predicate, value.as_proxy(), zeros.as_proxy())


def _presence(tx: compat.Tracer, item: Value, like: TensorValue) -> TensorValue:
    """Return whether an item is there, on the device of its tensor."""
    device = example_of(like).device
    if not isinstance(item, OptionalItem):
        return fx_graph.function(tx, torch.full, (), True, dtype=torch.bool, device=device)
    return fx_graph.method(tx, "to", item.predicate, device=device)


def _joined(
    tx: compat.Tracer, join: Callable[..., Any], tensors: Sequence[Value], place: int = 0
) -> TensorValue:
    return fx_graph.function(tx, join, [each.as_proxy() for each in tensors], place)


def _selected(tx: compat.Tracer, rows: TensorValue, truths: TensorValue, place: int) -> TensorValue:
    """Return what is there of a tensor along one dimension, in memory of its own."""
    if place:
        places = fx_graph.function(tx, torch.nonzero, truths)
        flat = fx_graph.method(tx, "squeeze", places, 1)
        return fx_graph.function(tx, torch.index_select, rows, place, flat)
    found = fx_graph.function(tx, operator.getitem, rows, truths.as_proxy())
    ahead.know_sizes(tx, found)
    return found


def _in_a_row(
    tx: compat.Tracer, items: OptionalList, tensors: Sequence[TensorValue], dim: Value
) -> Value:
    """Join tensors, and select their rows where one that is not there has any."""
    dimensions = [example_of(each).dim() for each in tensors]
    place = _place_of(dim, max(dimensions), items) if max(dimensions) else 0
    if place and len(set(dimensions)) > 1:
        items.ask()
    if all(_is_empty_if_absent(each, place) for each in items.optional):
        return _joined(tx, torch.cat, tensors, place)
    if not all(dimensions):
        items.ask()
    if place and not all(example_of(each).is_contiguous() for each in tensors):
        items.ask()  # the result may be in another order
    given = list(zip(items.all_items, tensors, strict=True))
    rows = [_or_zeros(tx, *each) for each in given]
    truths = [_presence_of_rows(tx, *each, place) for each in given]
    return _selected(tx, _joined(tx, torch.cat, rows, place), _joined(tx, torch.cat, truths), place)


def _presence_of_rows(
    tx: compat.Tracer, item: Value, value: TensorValue, place: int
) -> TensorValue:
    """Return for each row of a tensor along one dimension whether the tensor is there."""
    rows = value.call_method(tx, "size", [constant(place)], {})
    return fx_graph.method(tx, "expand", _presence(tx, item, value), rows)


def _is_empty_if_absent(item: OptionalItem, place: int) -> bool:
    """Return whether a tensor has no rows along one dimension where it is not there."""
    example = example_of(item.value)  # type: ignore[arg-type]
    rows: Any = example.shape[place] if example.dim() else 1
    if isinstance(rows, int):
        return rows == 0
    form = rows.node.shape_env.simplify(rows.node.expr)
    return bool(form.xreplace(dict(item.absent)) == 0)


_JOINS: Final = {torch.stack: _stacked, torch.cat: _in_a_row, torch.concat: _in_a_row}
