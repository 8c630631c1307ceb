"""``min`` and ``max`` of tensors and of their numbers, as Python has them; ``sort`` of lists.

Python returns one of its arguments, the first unless a later one is smaller or larger: NaN is
neither, 0.0 and -0.0 are equal, and of an integer and a float the result has the type of the one
that is returned. Symbolic numbers have one type, NaN wins, and a back end picks a zero. So floats
are compared as tensors; of an integer and a float both are kept, as of a branch whose sides have no
common form. Tuples are compared by the first items that differ: a list of ``(name, tensor)`` is
sorted where names decide every comparison, and by numbers in the graph (``sorted_items``). Of
tuples of tensors the extreme is one of them, which is known where each comparison is computed in
front of the graph.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import torch

from bcmend.dynamo import compat, fx_graph, handlers
from bcmend.dynamo.handlers import PASS, Answer, Call
from bcmend.dynamo.models import methods
from bcmend.dynamo.values import (
    TensorValue,
    Value,
    constant,
    example_of,
    is_unbacked,
    number_in,
)
from bcmend.tracing.indexing import sorted_items
from bcmend.tracing.merging.lazy_phi import GatedPhi
from bcmend.tracing.numbers import ahead, float_tensors, predicates, scalars
from bcmend.tracing.search.assumptions import Claim
from bcmend.tracing.sites import body_states, capture_mode, site_table

_KINDS: Final = {torch.SymFloat: float, torch.SymInt: int, torch.SymBool: bool}
_BEYOND: Final = {min: operator.lt, max: operator.gt}


@handlers.method(
    compat.BuiltinVariable, methods.CALL_MIN_MAX, "`min` and `max` of numbers out of tensors"
)
def _pick(call: Call) -> Answer:
    """Answer which of two values is the smaller, or the larger one."""
    one, other = (None if each is None else each.realize() for each in call.args)
    if one is None or other is None or not capture_mode.may_be_mended(call.tx):
        return PASS
    is_open = any(isinstance(each, GatedPhi) or is_unbacked(each) for each in (one, other))
    if not is_open and {_kind(one), _kind(other)} == {int, float}:
        return _picked_by_guard(call.owner.fn, one, other)
    if not capture_mode.in_mended_code(call.tx):
        return PASS
    if is_open:
        return _extreme(call.tx, call.owner.fn, one, other) or PASS
    if type(one) is type(other) is compat.TensorVariable:
        return _of_tensors(call.tx, call.owner.fn, one, other) or PASS
    function = call.owner.fn
    return _first_tuple(call.tx, function.__name__, _BEYOND[function], one, other) or PASS


@handlers.method(
    compat.BuiltinVariable, methods.CALL_MIN_MAX_OF_ITEMS, "`min` and `max` of no items"
)
def _of_items(call: Call) -> Answer:
    """Answer what Python raises where there are no items, at which Dynamo fails before 2.14."""
    (items,) = call.args
    if items or not capture_mode.in_mended_code(call.tx):
        return PASS
    try:
        call.owner.fn(())
    except ValueError as error:
        compat.raise_observed_exception(ValueError, call.tx, args=[str(error)])
    return PASS


def _picked_by_guard(function: Any, one: Any, other: Any) -> Value:
    """Return the smaller or the larger of an integer and a float, under a guard that it is."""
    is_other = _BEYOND[function](number_in(other), number_in(one))
    found: Value = other if is_other else one
    return found


def _extreme(tx: compat.Tracer, function: Any, one: Value, other: Value) -> Value | None:
    """Return which of two values is the smaller, or the larger; ``None`` where torch knows."""
    if isinstance(one, GatedPhi):
        return _of_both(tx, one, [(side, other) for side in one.sides], function)
    if isinstance(other, GatedPhi):
        return _of_both(tx, other, [(one, side) for side in other.sides], function)
    kinds = _kind(one), _kind(other)
    if None in kinds or kinds == (int, int):
        return None
    if kinds == (float, float) and not (_is_known(one) and _is_known(other)):
        return _picked(tx, function, one, other)
    if _is_known(one) and _is_known(other):
        return constant(function(one.as_python_constant(), other.as_python_constant()))
    return _either(tx, function, one, other)


def _of_tensors(tx: compat.Tracer, function: Any, one: Any, other: Any) -> Value | None:
    """Return the extreme of two tensors of one item each; ``None`` where torch knows.

    Torch takes ``torch.maximum``, in which NaN wins, and which shares the gradient of a tie out.
    """
    examples = example_of(one), example_of(other)
    if any(each.is_complex() or each.layout is not torch.strided for each in examples):
        return None
    forms = {(each.dtype, each.device, tuple(each.shape)) for each in examples}
    if len(forms) > 1 or not all(size == 1 for size in examples[0].shape):
        handlers.break_graph(
            "an extreme of two tensors",
            function.__name__,
            "Python returns one of them, or fails where they have several items. Which one, and so"
            " which form, depends on the data.",
            hints=["Call `torch.maximum` or `torch.minimum`."],
        )
    is_beyond = fx_graph.function(tx, _BEYOND[function], other, one)
    predicate = predicates.as_predicate(tx, is_beyond)
    return predicates.chosen(tx, predicate, other.as_proxy(), one.as_proxy())


def _of_both(
    tx: compat.Tracer, phi: GatedPhi, pairs: Sequence[tuple[Value, Value]], function: Any
) -> Value | None:
    """Return the extremes of the sides of a phi, as its sides."""
    sides = [
        _extreme(tx, function, one.realize(), other.realize())
        or Value.build(tx, function).call_function(tx, [one, other], {})
        for one, other in pairs
    ]
    return GatedPhi(phi.site, phi.form, phi.output, sides, predicate=phi.predicate)


def _either(tx: compat.Tracer, function: Any, one: Value, other: Value) -> Value:
    """Return whichever is the extreme of two numbers that differ in type."""
    site = site_table.number_being_traced(tx, function.__name__)
    is_beyond = Value.build(tx, _BEYOND[function]).call_function(tx, [other, one], {}).realize()
    if is_beyond.is_python_constant():
        return other if is_beyond.as_python_constant() else one
    if site is None or not site.holds(Claim.READ_APART, 0):
        return other if _known_truth(tx, function, is_beyond) else one
    predicate = predicates.as_predicate(tx, is_beyond)
    site.mended("two forms", "an integer or a float, as the data decide")
    return GatedPhi(site, 0, tx.output, [other, one], predicate=predicate)


def _known_truth(tx: compat.Tracer, function: Any, is_beyond: Any) -> bool:
    """Return the truth of a comparison of numbers of which the trace knows the values."""
    try:
        return bool(is_beyond.evaluate_expr(tx.output))
    except compat.UserError:  # the numbers may be had in front of the graph, where it says of which
        handlers.break_graph(
            "an extreme of numbers of two types",
            function.__name__,
            "Which type the result has depends on the data, and code that reads it could not be"
            " traced for both.",
            hints=["Give both numbers one type, as in `max(0.0, x.item())`."],
        )


def _kind(value: Any) -> type | None:
    if isinstance(value, compat.SymNodeVariable):
        return _KINDS[type(value.sym_num)]
    return type(value.value) if isinstance(value, compat.ConstantVariable) else None


def _picked(tx: compat.Tracer, function: Any, one: Any, other: Any) -> Value | None:
    first, second = _double(tx, one), _double(tx, other)
    is_second = fx_graph.function(tx, _BEYOND[function], second, first)
    return scalars.take(tx, fx_graph.function(tx, torch.where, is_second, second, first))


def _is_known(value: Value) -> bool:
    return isinstance(value, compat.ConstantVariable)


def _double(tx: compat.Tracer, value: Any) -> Any:
    """Return a float as an operand of an operator of the graph."""
    return (
        value.as_python_constant()
        if _is_known(value)
        else float_tensors.as_tensor(tx, value.as_proxy())
    )


# Tuples


def _first_tuple(
    tx: compat.Tracer, name: str, is_beyond: Callable[..., Any], one: Value, other: Value
) -> Value | None:
    """Return ``other`` if it is beyond ``one``, else ``one``; ``None`` for no tuples of tensors."""
    pairs = _pairs(one, other)
    if not pairs:
        return None
    site = site_table.number_being_traced(tx, name)
    if site is None:
        return None
    truth: TensorValue | None = None
    for left, right in reversed(pairs):
        beyond = fx_graph.function(tx, is_beyond, right, left)
        if truth is not None:
            is_same = fx_graph.function(tx, torch.eq, right, left)
            beyond = fx_graph.function(tx, torch.where, is_same, truth, beyond)
        truth = beyond
    assert truth is not None
    known = ahead.truth_of_condition(tx, truth, site)
    if known is None:
        ahead.note_condition(tx, truth, site)
        handlers.break_graph(
            body_states.UNKNOWN_ORDER,
            name,
            "Which of two tuples of tensors comes first depends on the data.",
        )
    site.mended("ahead", "their order is computed in front of the graph")
    return other if known else one


def _pairs(one: Value, other: Value) -> Sequence[tuple[Any, Any]]:
    """Return the items of two tuples that may differ; none where these are no plain numbers."""
    if type(one) is not compat.TupleVariable or type(other) is not compat.TupleVariable:
        return ()
    if len(one.items) != len(other.items):
        return ()
    items = [(a.realize(), b.realize()) for a, b in zip(one.items, other.items, strict=True)]
    found = [each for each in items if each[0] is not each[1]]
    return found if all(map(_are_comparable, found)) else ()


def _are_comparable(pair: tuple[Any, Any]) -> bool:
    if any(type(each) is not compat.TensorVariable for each in pair):
        return False
    one, other = map(example_of, pair)
    are_single = one.dim() == 0 == other.dim() and one.layout is other.layout is torch.strided
    return are_single and one.dtype is other.dtype and not one.is_complex()


#: Classes of the items by which tuples are sorted: equal ones are alike, and others have an order.
_SORTED_BY: Final = (str, bytes, int, bool, type(None))


def _sort(call: Call) -> Answer:
    """Answer ``items.sort()`` where an item or a key is no constant."""
    items = call.owner
    name, args, kwargs = (*call.args, {})[:3]
    given = {key: value.realize() for key, value in kwargs.items()}
    is_sort = name == "sort" and not args and set(given) <= {"key", "reverse"}
    if not is_sort or items.mutation_type is None or not capture_mode.in_mended_code(call.tx):
        return PASS
    key, is_reversed = (given.get(each, constant(None)) for each in ("key", "reverse"))
    if all(each.is_python_constant() for each in items.items) and key.is_constant_none():
        return PASS
    if not is_reversed.is_python_constant():
        return PASS
    known: list[Any] = [_known_beginning(each.realize()) for each in items.items]
    if key.is_constant_none() and None not in known and _are_told_apart(known):
        try:
            places = range(len(known))
            order = sorted(places, key=known.__getitem__, reverse=bool(is_reversed.value))
        except TypeError:  # of items of two classes
            return PASS
        found = [items.items[place] for place in order]
    else:
        site = sorted_items.site_of(call.tx, name)
        if site is None:
            return PASS
        found = sorted_items.sorted_by(
            call.tx, site, items.items, key, is_reversed=bool(is_reversed.value)
        )
    call.tx.output.side_effects.mutation(items)
    items.items[:] = found
    return constant(None)


def _known_beginning(value: Value) -> tuple[Any, ...] | None:
    """Return the items with which a tuple begins that are constants; ``None`` for no tuple."""
    if type(value) is not compat.TupleVariable:
        return None
    models = (each.realize() for each in value.items)
    known = itertools.takewhile(lambda each: isinstance(each, compat.ConstantVariable), models)
    values = (each.as_python_constant() for each in known)
    return tuple(itertools.takewhile(lambda each: type(each) in _SORTED_BY, values))


def _are_told_apart(keys: Sequence[Any]) -> bool:
    """Return whether any two differ in an item that both have."""
    return all(
        any(one != other for one, other in zip(*pair, strict=False))
        for pair in itertools.combinations(keys, 2)
    )


def _sort_of_lists(call: Call) -> Answer:
    """Answer ``items.sort()`` where later torch has a method for it, as Dynamo calls that."""
    return _sort(replace(call, args=("sort", *call.args)))


_PURPOSE: Final = "`sort` of tuples by their names, and by numbers out of tensors"
for _name in methods.SORT_OF_LISTS:
    handlers.method(compat.ListVariable, _name, _PURPOSE)(_sort_of_lists)
if not methods.SORT_OF_LISTS:
    handlers.method(compat.ListVariable, methods.CALL_METHOD, _PURPOSE)(_sort)
