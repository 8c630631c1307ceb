"""Lists sorted by numbers out of tensors, and ``max`` and ``min`` with a ``key``.

The keys are sorted in the graph, which gives the place of the item that comes first, second and so
on. What stands there is a phi of all items, of which one is taken when it is read, as where a
branch leaves one of two values. Keys are numbers or tensors of one item, or tuples of them. NaN
has no order: where a key is one, the call is made in plain Python.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Final, cast

import torch

from bcmend.dynamo import compat, fx_graph, handlers, hooks, shape_env
from bcmend.dynamo.handlers import PASS
from bcmend.dynamo.models import constants, methods
from bcmend.dynamo.values import (
    TensorValue,
    Value,
    constant,
    example_of,
    items_in,
)
from bcmend.tracing.effects import watches
from bcmend.tracing.effects.memory_form import difference
from bcmend.tracing.merging.lazy_phi import GatedPhi, LazyPhi
from bcmend.tracing.numbers import predicates, scalars
from bcmend.tracing.output import deferred_exceptions
from bcmend.tracing.search.assumptions import Claim
from bcmend.tracing.sites import capture_mode, site_table
from bcmend.tracing.sites.site_table import LiveSite
from bcmend.tracing.two_forms import open_numbers

#: Each place is a chain of as many phis as there are items.
ITEMS_AT_MOST: Final = 16

_NO_ORDER: Final = "an order that depends on the data"


def site_of(tx: compat.Tracer, name: str) -> LiveSite | None:
    """Return the site of the statement being traced; ``None`` where it is left to Dynamo."""
    if not capture_mode.in_mended_code(tx):
        return None
    site = site_table.number_being_traced(tx, name)
    return None if site is None or not deferred_exceptions.can_exit(tx, site) else site


def sorted_by(
    tx: compat.Tracer, site: LiveSite, items: Sequence[Value], key: Value, *, is_reversed: bool
) -> list[Value]:
    """Return items in the order of their keys. Breaks the graph where that cannot be had."""
    keys = _keys(tx, items, key)
    known = _known(tx, site, keys, partial(sorted, reverse=is_reversed))
    if known is not None:
        places = range(len(items))
        return [items[each] for each in sorted(places, key=known.__getitem__, reverse=is_reversed)]
    order = _order(tx, site, keys, is_reversed=is_reversed)
    found = [_standing_at(tx, site, items, order, place) for place in range(len(items))]
    site.mended("two forms", "sorted in the graph; an item is taken when it is read")
    return found


def _extreme(
    tx: compat.Tracer, site: LiveSite, function: Any, items: Sequence[Value], key: Value
) -> Value:
    """Return the first of the items with the largest key, or the smallest."""
    keys = _keys(tx, items, key)
    known = _known(tx, site, keys, function)
    if known is not None:
        place: int = function(range(len(items)), key=known.__getitem__)
        return items[place]
    order = _order(tx, site, keys, is_reversed=function is max)
    found = _standing_at(tx, site, items, order, 0)
    site.mended("two forms", "found in the graph; the item is taken when it is read")
    return found


def _keys(tx: compat.Tracer, items: Sequence[Value], key: Value) -> list[Value]:
    if key.is_constant_none():
        return [each.realize() for each in items]
    return [key.call_function(tx, [each], {}).realize() for each in items]


def _known(
    tx: compat.Tracer, site: LiveSite, keys: Sequence[Value], order: Callable[[list[Any]], Any]
) -> Sequence[Any] | None:
    """Return keys that are compared while the call is traced; ``None`` for data-dependent ones.

    ``order`` is what compares them, and raises what the program gets to see.
    """
    if len(keys) < 2:
        return [None] * len(keys)  # nothing is compared
    if not all(each.is_python_constant() for each in keys):
        is_known = not any(map(_depends_on_data, keys))
        return [_Compared(tx, site, each) for each in keys] if is_known else None
    found = [each.as_python_constant() for each in keys]
    try:
        order(found)
    except Exception as error:  # whatever the comparison of the program raises
        compat.raise_observed_exception(type(error), tx, args=list(error.args))
    return found


def _depends_on_data(key: Any) -> bool:
    if type(key) is compat.TupleVariable:
        return any(_depends_on_data(each.realize()) for each in key.items)
    return isinstance(key, (compat.TensorVariable, compat.SymNodeVariable, LazyPhi))


@dataclass(frozen=True, slots=True)
class _Compared:
    """A key of a class of the program's, which compares by a method that is traced."""

    tx: compat.Tracer
    site: LiveSite
    key: Value

    def __lt__(self, other: _Compared) -> bool:
        return self._compare(operator.lt, other)

    def __gt__(self, other: _Compared) -> bool:
        return self._compare(operator.gt, other)

    def _compare(self, function: Any, other: _Compared) -> bool:
        compare = Value.build(self.tx, function)
        found = compare.call_function(self.tx, [self.key, other.key], {}).realize()
        if not found.is_python_constant():
            raise _without_order(self.site, "objects whose order depends on the data")
        return bool(found.as_python_constant())


def _order(
    tx: compat.Tracer, site: LiveSite, keys: Sequence[Value], *, is_reversed: bool
) -> TensorValue:
    """Return the places of items in their order: a 1-d tensor of integers."""
    if len(keys) > ITEMS_AT_MOST:
        raise _without_order(site, f"more than {ITEMS_AT_MOST} items")
    columns = [_column(tx, site, each) for each in _columns(site, keys)]
    devices = {example_of(each).device for each in columns}
    if len(devices) != 1:
        raise _without_order(site, "keys on several devices")
    order: TensorValue | None = None
    for column in reversed(columns):
        given = column if order is None else _taken(tx, column, order)
        sort = fx_graph.function(tx, torch.argsort, given, descending=is_reversed, stable=True)
        order = sort if order is None else _taken(tx, order, sort)
    assert order is not None
    return order


def _taken(tx: compat.Tracer, values: TensorValue, places: TensorValue) -> TensorValue:
    return fx_graph.function(tx, torch.index_select, values, 0, places)


def _columns(site: LiveSite, keys: Sequence[Any]) -> list[list[Any]]:
    """Return what keys are compared by: themselves, or items of tuples, the first one first."""
    if not any(type(each) is compat.TupleVariable for each in keys):
        return [list(keys)]
    if len({type(each) for each in keys}) > 1 or len({len(each.items) for each in keys}) > 1:
        raise _without_order(site, "keys of several forms")
    found: list[list[Any]] = []
    for column in zip(*(each.items for each in keys), strict=True):
        found.append([each.realize() for each in column])
        known = [each for each in found[-1] if isinstance(each, compat.ConstantVariable)]
        if len({each.value for each in known}) == len(keys):
            break  # what follows decides nothing
    return found


def _column(tx: compat.Tracer, site: LiveSite, keys: Sequence[Any]) -> TensorValue:
    """Return a tensor whose items compare as keys do."""
    if all(isinstance(each, compat.ConstantVariable) for each in keys):
        keys = _ranks(site, [each.value for each in keys])
    kinds = {_kind(each) for each in keys}
    if len(kinds) != 1 or None in kinds:
        raise _without_order(site, "keys of several types, or that are no numbers")
    rows = [_row(tx, each) for each in keys]
    stacked = fx_graph.function(tx, torch.stack, [each.as_proxy() for each in rows], 0)
    if not example_of(stacked).is_floating_point():
        return stacked
    has_none = fx_graph.method(tx, "any", fx_graph.function(tx, torch.isnan, stacked))
    deferred_exceptions.make_side_exit(tx, site, has_none)
    return fx_graph.function(tx, torch.add, stacked, 0.0)  # there is one zero


def _ranks(site: LiveSite, known: Sequence[Any]) -> list[Value]:
    """Return integers that compare as constants do."""
    try:
        ranked = sorted(set(known))
    except TypeError:
        raise _without_order(site, "keys of several types") from None
    if any(each != each for each in known):
        raise _without_order(site, "a key that is NaN")
    return [constant(ranked.index(each)) for each in known]


def _kind(key: Any) -> Any:
    """Return the type of a number, or dtype and device of a tensor of one item."""
    if isinstance(key, LazyPhi):
        return None
    if type(key) is not compat.TensorVariable:
        kind = open_numbers.kind_of(key)
        is_held = kind is not int or not shape_env.may_overflow(open_numbers.limits(key))
        return kind if is_held else None
    example = example_of(key)
    is_plain = example.layout is torch.strided and not example.is_complex()
    is_one = is_plain and all(size == 1 for size in example.shape)
    return (example.dtype, example.device) if is_one else None


def _row(tx: compat.Tracer, key: Any) -> TensorValue:
    """Return a 0-d tensor of a key."""
    if type(key) is compat.TensorVariable:
        return fx_graph.method(tx, "reshape", fx_graph.method(tx, "detach", key), ())
    kind = _kind(key)
    number = open_numbers.tensor_of(tx, key, kind)
    return number if kind is int else fx_graph.method(tx, "to", number, torch.float64)


def _standing_at(
    tx: compat.Tracer, site: LiveSite, items: Sequence[Value], order: TensorValue, place: int
) -> Value:
    """Return the item that has a place, as a phi of those that may have it; or merged."""
    index = fx_graph.function(tx, torch.select, order, 0, place)
    truths = [fx_graph.function(tx, torch.eq, index, at) for at in range(len(items) - 1)]
    predicates_of = [predicates.as_predicate(tx, each) for each in truths]
    if not site.holds(Claim.READ_APART, 0):
        return _merged(tx, site, [each.realize() for each in items], predicates_of)
    found = items[-1]
    for item, predicate in reversed(list(zip(items, predicates_of, strict=False))):
        if item is not found and not constants.are_same(item, found):
            found = GatedPhi(site, 0, tx.output, [item, found], predicate=predicate)
    return found


def _merged(
    tx: compat.Tracer, site: LiveSite, items: Sequence[Any], taken: Sequence[TensorValue]
) -> Value:
    """Return the item that is taken as one value: a tensor, a number, or a tuple of such."""
    first, *others = items
    if all(each is first or constants.are_same(each, first) for each in others):
        return cast(Value, first)
    kinds = {type(each) for each in items}
    if kinds == {compat.TupleVariable} and len({len(each.items) for each in items}) == 1:
        columns = zip(*(each.items for each in items), strict=True)
        parts = [[each.realize() for each in column] for column in columns]
        return compat.TupleVariable([_merged(tx, site, each, taken) for each in parts])
    if kinds == {compat.TensorVariable}:
        examples = [example_of(each) for each in items]
        if why := next(filter(None, (difference(examples[0], each) for each in examples)), ""):
            raise _without_order(site, f"items that differ in {why}")
        found = _chosen(tx, items, taken)
        for each in (*examples, example_of(found)):
            watches.add(tx, each, site.unmendable("alias-changed", "a sorted tensor is changed"))
        return found
    numbers = {_kind(each) for each in items}
    if len(numbers) != 1 or numbers.isdisjoint((int, float)):
        raise _without_order(site, "items of several kinds, which are read as one")
    number = scalars.take(tx, _chosen(tx, [_row(tx, each) for each in items], taken))
    if number is None:
        raise _without_order(site, "numbers that are no numbers of the graph")
    if int in numbers:
        shape_env.limit(number, reduce(operator.or_, map(open_numbers.limits, items)))
    return number


def _chosen(
    tx: compat.Tracer, items: Sequence[TensorValue], taken: Sequence[TensorValue]
) -> TensorValue:
    found = items[-1]
    for item, predicate in reversed(list(zip(items, taken, strict=False))):
        found = predicates.chosen(tx, predicate, item.as_proxy(), found.as_proxy())
    return found


def _without_order(site: LiveSite, why: str) -> compat.Unsupported:
    site.refuse("no-equal-substitute", why)
    handlers.break_graph(
        _NO_ORDER, site.key, f"Items are sorted by numbers out of tensors, and there are {why}."
    )


@hooks.around(
    compat.BuiltinVariable,
    methods.MAKE_HANDLER,
    "`max` and `min` with a key, `sorted`",
    gate=None,
    place=2,
)
def _make_handler(inner: Any, function: Any, kinds: Sequence[type], has_keywords: bool) -> Any:
    handler = inner(function, kinds, has_keywords)
    if function is sorted and kinds and issubclass(kinds[0], compat.TensorVariable):
        return partial(_sorted_tensor, handler)
    if function not in (max, min) or not has_keywords:
        return handler

    def find(tx: compat.Tracer, args: Sequence[Value], kwargs: Any) -> Any:
        answer = _find(tx, function, args, kwargs)
        return handler(tx, args, kwargs) if answer is PASS else answer

    return find


def _sorted_tensor(inner: Any, tx: compat.Tracer, args: Sequence[Value], kwargs: Any) -> Any:
    """Answer ``sorted(tensor)``, a list of its items."""
    if len(args) != 1 or not capture_mode.in_mended_code(tx):
        return inner(tx, args, kwargs)
    items = Value.build(tx, list).call_function(tx, [*args], {})
    return Value.build(tx, sorted).call_function(tx, [items], kwargs)


def _find(tx: compat.Tracer, function: Any, args: Sequence[Value], kwargs: Any) -> Any:
    """Answer ``max(..., key=key, default=default)``."""
    if "key" not in kwargs or not kwargs.keys() <= {"key", "default"} or not args:
        return PASS
    site = site_of(tx, function.__name__)
    if site is None:
        return PASS
    items: Sequence[Value] | None = args
    if len(args) == 1:
        made = Value.build(tx, list).call_function(tx, [*args], {}).realize()
        items = None if isinstance(made, LazyPhi) else items_in(made)
    elif "default" in kwargs:
        return PASS
    if items is None:
        return PASS
    if not items:
        return kwargs.get("default", PASS)
    return _extreme(tx, site, function, items, kwargs["key"].realize())
