"""Operators of Python on values in two forms.

``loss + f(x)`` where ``loss`` is a tensor or still 0 is computed on both sides; the outcome is one
tensor. ``n + 1`` is computed of each number that ``n`` may be.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from bcmend.dynamo import compat, handlers, hooks
from bcmend.dynamo.models import constants, methods
from bcmend.dynamo.values import Value, constant
from bcmend.tracing.merging.lazy_phi import LazyPhi
from bcmend.tracing.sites import capture_mode
from bcmend.tracing.two_forms import augmented, hook_results, late_tensors, open_numbers, sides

_COMPARISONS: Final = (
    operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne,
)  # fmt: skip
OPERATORS: Final = frozenset(
    [*augmented.PLAIN, *augmented.PLAIN.values(), *_COMPARISONS, operator.neg, operator.pos]
)

_TESTS: Final = (operator.is_, operator.is_not)

_Inner = Callable[[Sequence[Value]], Value]


@hooks.around(
    compat.BuiltinVariable, methods.MAKE_HANDLER, "arithmetic with two forms", gate=None, place=1
)
def _make_handler(inner: Any, function: Any, kinds: Sequence[type], has_keywords: bool) -> Any:
    handler = inner(function, kinds, has_keywords)
    is_of_phis = not has_keywords and any(issubclass(each, LazyPhi) for each in kinds)
    if is_of_phis and function is operator.getitem and not issubclass(kinds[0], LazyPhi):
        return partial(_read, handler, function)
    if is_of_phis and function in _TESTS:
        return partial(_test, handler, function)
    if not (is_of_phis and function in OPERATORS):
        return handler

    def operate(tx: compat.Tracer, args: Sequence[Value], kwargs: Any) -> Any:
        if not capture_mode.in_mended_code(tx):
            return handler(tx, args, kwargs)
        apply = partial(_apply, tx, function)
        if function in augmented.PLAIN and augmented.is_of_one_variable(tx, args[0]):
            apply = partial(_apply_beside, tx, function)
        found = compute(tx, args, apply)
        return handler(tx, args, kwargs) if found is None else found

    return operate


@handlers.attribute_read("attributes of values in two forms", place=1)
def _attribute(
    read: Callable[[Any], Any], tx: compat.Tracer, owner: Any, default: Value | None
) -> Any:
    """Read an attribute of a tensor that may be a constant, which mostly has no such."""
    is_asked = isinstance(owner, LazyPhi) and default is None and capture_mode.in_mended_code(tx)
    if is_asked and _is_computable(owner) and sides.have_at_hand(owner):
        told: Any = _in_few_forms(tx, owner)
        if _is_mixed(told):
            on_both = [partial(read, known) for (known,) in _on_both(tx, told, [told])]
            found = sides.computed(tx, told, told.predicate, [told], on_both)
            if found is not None:
                return found
        elif not isinstance(told, LazyPhi):
            return read(told)
    return read(owner)


def _read(inner: Any, function: Any, tx: compat.Tracer, args: Sequence[Value], kwargs: Any) -> Any:
    """Read the item at a place that has several forms."""
    owner, place = (each.realize() for each in args)
    if capture_mode.in_mended_code(tx) and _is_computable(place) and sides.have_at_hand(place):
        number = _as_one(tx, place)
        if number is not place:
            return _apply(tx, function, [owner, number])
    return inner(tx, args, kwargs)


def _test(inner: Any, function: Any, tx: compat.Tracer, args: Sequence[Value], kwargs: Any) -> Any:
    """Tell of each form of a value whether it is ``None``, or another constant."""
    operands = [each.realize() for each in args]
    if capture_mode.in_mended_code(tx) and _are_told_apart(operands):
        if any(hook_results.settled(tx, each) for each in operands):
            return constant(function is operator.is_not)
        return _of_each_form(tx, operands, partial(_apply, tx, function))
    return inner(tx, args, kwargs)


def _are_told_apart(operands: Sequence[Value]) -> bool:
    """Return whether what is compared with ``None`` has its forms at hand."""
    phis = [each for each in operands if isinstance(each, LazyPhi)]
    others = [each for each in operands if not isinstance(each, LazyPhi)]
    return (
        len(phis) == 1
        and all(each.is_constant_none() for each in others)
        and sides.have_at_hand(phis[0])
    )


def _of_each_form(tx: compat.Tracer, operands: Sequence[Value], apply: _Inner) -> Value:
    phi: Any = next((each for each in operands if isinstance(each, LazyPhi)), None)
    if phi is None:
        return apply(operands)
    one, other = (_of_each_form(tx, each, apply) for each in _on_both(tx, phi, operands))
    return _like(phi, one, other)


def _apply(tx: compat.Tracer, function: Any, operands: Sequence[Value]) -> Value:
    return compat.BuiltinVariable(function).call_function(tx, [*operands], {})


def _apply_beside(tx: compat.Tracer, function: Any, operands: Sequence[Value]) -> Value:
    """Do what an operator in place does, but leave its operand as it is."""
    found = _apply(tx, augmented.PLAIN[function], operands)
    is_written = type(operands[0]) is compat.TensorVariable
    if is_written and not augmented.is_of_the_same_form(operands[0], found):
        return _apply(tx, function, operands)
    return found


def compute(tx: compat.Tracer, given: Sequence[Value], apply: _Inner) -> Value | None:
    """Return what ``apply`` gives for operands of which some have two forms; ``None`` if nothing.

    ``apply`` is given operands with fewer of them.
    """
    operands = [each.realize() for each in given]
    phis = [each for each in operands if isinstance(each, LazyPhi)]
    if not all(_is_computable(each) and sides.have_at_hand(each) for each in phis):
        return None
    operands = [_in_few_forms(tx, each) for each in operands]
    mixed: Any = next((each for each in operands if _is_mixed(each)), None)
    if mixed is None:
        return _of_numbers(tx, operands, apply)
    operands = [_as_one(tx, each) for each in operands]
    on_both = [partial(apply, known) for known in _on_both(tx, mixed, operands)]
    found = sides.computed(tx, mixed, mixed.predicate, operands, on_both)
    return None if found is None else _in_few_forms(tx, found)


def _on_both(tx: compat.Tracer, phi: Any, operands: Sequence[Value]) -> list[list[Value]]:
    """Return operands in the form that they have on each side of a phi."""
    return [sides.on_side(tx, operands, phi.predicate, truth) for truth in (True, False)]


def _is_computable(value: Value) -> bool:
    """Return whether a value is a number or a tensor, in each of its forms."""
    return all(
        type(each) is compat.TensorVariable or open_numbers.kind_of(each) is not None
        for each in sides.leaves(value)
    )


def _is_mixed(value: Value) -> bool:
    return sides.is_open(value) and late_tensors.is_told_of_one(value)


def _in_few_forms(tx: compat.Tracer, value: Value) -> Value:
    """Return a value in as few forms as it can be told in."""
    if not sides.is_open(value):
        return value
    if open_numbers.kind_of(value) is None:
        return late_tensors.joined(tx, value) or value
    return value if open_numbers.is_plain(value) else open_numbers.joined(tx, value) or value


def settled(tx: compat.Tracer, value: Value) -> Value:
    """Return what a turn of a loop has left in as few forms as it can be told in.

    What other branches leave stays as it is: where it is returned it is the very tensor that it is
    in eager execution. What nobody computes with needs no number of the graph.
    """
    if not sides.is_open(value):
        return value
    if open_numbers.kind_of(value) is not None:
        is_more = open_numbers.is_computed(value) or open_numbers.has_many_forms(value)
    else:
        is_more = any(isinstance(s, LazyPhi) and s.site is value.site for s in value.sides)
    return _in_few_forms(tx, value) if is_more else value


def _as_one(tx: compat.Tracer, value: Value) -> Value:
    """Return a number of more than two forms as one."""
    if not sides.is_open(value) or open_numbers.kind_of(value) is None:
        return value
    is_nested = any(isinstance(side, LazyPhi) for side in value.sides)
    return (open_numbers.joined(tx, value) or value) if is_nested else value


def _of_numbers(tx: compat.Tracer, operands: Sequence[Value], apply: _Inner) -> Value | None:
    phis = [each for each in operands if isinstance(each, LazyPhi)]
    if not phis:
        return apply(operands)
    if all(open_numbers.kind_of(each) is not None for each in operands):
        return _of_each(tx, phis[0], operands, apply)
    if all(open_numbers.kind_of(each) is not None for each in phis):
        operands = [_as_one(tx, each) for each in operands]
        if not any(isinstance(each, LazyPhi) for each in operands):
            return apply(operands)
    return None


def _of_each(tx: compat.Tracer, phi: Any, operands: Sequence[Value], apply: _Inner) -> Value | None:
    """Compute with each number that a phi may be."""
    found = []
    for known in _on_both(tx, phi, operands):
        value = compute(tx, known, apply)
        if value is None:
            return None
        found.append(value)
    return _in_few_forms(tx, _like(phi, *found))


def _like(phi: Any, one: Value, other: Value) -> Value:
    """Return a phi of other sides; one of them if they are the same constant."""
    if constants.are_same(one, other):
        return one
    return sides.like(phi, phi.predicate, [one, other])
