"""Values that are a tensor, or a tuple of some, on some paths and one same constant on the others.

``loss = 0`` in front of a loop whose turns add to it, or not: after each turn it is a tensor if any
turn has added, and else still 0. That is one tensor, the truth of whether it is that, and the
constant, however many turns there are. So is ``best = None`` where turns set a tuple of tensors and
numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from bcmend.dynamo import compat
from bcmend.dynamo.values import TensorValue, Value
from bcmend.tracing.heap.same import is_same
from bcmend.tracing.numbers import predicates
from bcmend.tracing.two_forms import holders, open_numbers, parts, sides
from bcmend.tracing.two_forms.sides import Open

#: Constants, and numbers of the graph.
_NUMBERS: Final = (compat.ConstantVariable, compat.SymNodeVariable)


@dataclass(frozen=True, slots=True)
class LateTensor:
    """A tensor, or a tuple of tensors and numbers, where ``truth`` holds, else a constant.

    ``truth`` is a bool where one of the two is not there.
    """

    truth: TensorValue | bool
    value: Value | None
    constant: Value | None


def read(value: Value) -> LateTensor | None:
    """Return a value as such a one; ``None`` if it is something else."""
    if _is_of_tensors(value):
        return LateTensor(True, value.realize(), None)
    if isinstance(value, _NUMBERS):
        return LateTensor(False, None, value)
    if not sides.is_open(value):
        return None
    known: Any = value
    return LateTensor(known.predicate, *known.sides) if is_told(value) else None


def is_told(phi: Open) -> bool:
    """Return whether the sides are a tensor, or a tuple, and a constant, in this order."""
    one, other = phi.sides
    return _is_of_tensors(one) and isinstance(other, _NUMBERS)


def is_told_of_one(phi: Open) -> bool:
    """Return whether the sides of a phi are one tensor and a constant, in this order."""
    return is_told(phi) and type(phi.sides[0]) is compat.TensorVariable


def _is_of_tensors(value: Value) -> bool:
    if not parts.has_parts(value):
        return type(value) is compat.TensorVariable
    kinds = (compat.TensorVariable, *_NUMBERS)
    return all(isinstance(each.realize(), kinds) for each in parts.leaves_of(value))


def joined(tx: compat.Tracer, phi: Open) -> Value | None:
    """Return a phi as a late tensor, or as one of the two; ``None`` if it is something else."""
    if is_told(phi):
        return phi
    one, other = (_read_side(tx, side.realize()) for side in phi.sides)
    if one is None or other is None:
        return None
    constants = [each.constant for each in (one, other) if each.constant is not None]
    if len(constants) == 2 and not is_same(*constants):
        return None
    predicate: Any = phi.predicate
    given = [each.value for each in (one, other) if each.value is not None]
    value = _merged(tx, phi, given) if len(given) == 2 else next(iter(given), None)
    if value is None and given:
        return None
    truth = _chosen(tx, predicate, one.truth, other.truth)
    if isinstance(truth, bool):
        return value if truth else constants[0]
    assert value is not None
    return sides.like(phi, truth, [value, constants[0]])


def _merged(tx: compat.Tracer, phi: Open, given: Sequence[Value]) -> Value | None:
    """Return what holds the one of two tensors, or of each two in tuples, that a branch chooses."""
    if not parts.are_alike(*given):
        return None
    containers = [part for each in given for part in parts.changeable_in(each)]
    if holders.are_held_beside(tx, containers, phi):
        return None
    leaves = [[leaf.realize() for leaf in parts.leaves_of(each)] for each in given]
    places = [at for at, pair in enumerate(zip(*leaves, strict=True)) if _are_tensors(pair)]
    of_sides = [compat.TupleVariable([found[at] for at in places]) for found in leaves]
    tensors = [each for found in of_sides for each in found.items]
    first, second = of_sides
    if places:
        chosen = sides.computed(tx, phi, phi.predicate, tensors, (lambda: first, lambda: second))
        if not isinstance(chosen, compat.TupleVariable):
            return None
        merged = dict(zip(places, chosen.items, strict=True))
    else:
        merged = {}
    for at, (one, other) in enumerate(zip(*leaves, strict=True)):
        if at not in merged:
            merged[at] = _number(tx, phi, one, other)
    found = [merged[at] for at in range(len(leaves[0]))]
    is_whole = all(isinstance(each, (compat.TensorVariable, *_NUMBERS)) for each in found)
    return parts.made_like(given[0], found) if is_whole else None


def _are_tensors(values: Sequence[Value]) -> bool:
    return all(type(each) is compat.TensorVariable for each in values)


def _number(tx: compat.Tracer, phi: Open, one: Value, other: Value) -> Any:
    """Return the one of two numbers that a branch chooses; ``None`` of other things."""
    if not (isinstance(one, _NUMBERS) and isinstance(other, _NUMBERS)):
        return None
    if is_same(one, other):
        return one
    return open_numbers.joined(tx, sides.like(phi, phi.predicate, [one, other]))


def _read_side(tx: compat.Tracer, side: Value) -> LateTensor | None:
    found = joined(tx, side) if sides.is_open(side) else side
    return None if found is None else read(found)


def _chosen(tx: compat.Tracer, predicate: TensorValue, one: Any, other: Any) -> Any:
    """Return the one truth where a predicate holds and the other where not."""
    if one is other:
        return one
    if one is True:
        return predicate if other is False else predicates.either(tx, predicate, other)
    if other is False:
        return predicates.both(tx, predicate, one)
    negated = predicates.negated(tx, predicate)
    if one is False:
        return negated if other is True else predicates.both(tx, negated, other)
    if other is True:
        return predicates.either(tx, negated, one)
    return predicates.chosen(tx, predicate, one.as_proxy(), other.as_proxy())
