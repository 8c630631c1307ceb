"""Values that are a tensor on some paths and one and the same constant on the others.

``loss = 0`` in front of a loop whose turns add to it, or not: after each turn it is a tensor if any
turn has added, and else still 0. That is one tensor, the truth of whether it is that, and the
constant, however many turns there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from bcmend.dynamo import compat
from bcmend.dynamo.values import TensorValue, Value, is_same_constant
from bcmend.tracing.numbers import predicates
from bcmend.tracing.two_forms import sides
from bcmend.tracing.two_forms.sides import Open

#: Constants, and numbers of the graph.
_NUMBERS: Final = (compat.ConstantVariable, compat.SymNodeVariable)


@dataclass(frozen=True, slots=True)
class LateTensor:
    """A tensor where ``truth`` holds, else a constant.

    ``truth`` is a bool where one of the two is not there.
    """

    truth: TensorValue | bool
    tensor: TensorValue | None
    constant: Value | None


def read(value: Value) -> LateTensor | None:
    """Return a value as such a one; ``None`` if it is something else."""
    if type(value) is compat.TensorVariable:
        return LateTensor(True, value, None)
    if isinstance(value, _NUMBERS):
        return LateTensor(False, None, value)
    if not sides.is_open(value):
        return None
    known: Any = value
    return LateTensor(known.predicate, *known.sides) if is_told(value) else None


def is_told(phi: Open) -> bool:
    """Return whether the sides of a phi are a tensor and a constant, in this order."""
    one, other = phi.sides
    return type(one) is compat.TensorVariable and isinstance(other, _NUMBERS)


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
    tensors = [each.tensor for each in (one, other) if each.tensor is not None]
    if len(tensors) == 2:
        first, second = tensors
        merged = sides.computed(tx, phi, predicate, tensors, (lambda: first, lambda: second))
        if type(merged) is not compat.TensorVariable:
            return None
        tensors = [merged]
    truth = _chosen(tx, predicate, one.truth, other.truth)
    if isinstance(truth, bool):
        return tensors[0] if truth else constants[0]
    return sides.like(phi, truth, [tensors[0], constants[0]])


def _read_side(tx: compat.Tracer, side: Value) -> LateTensor | None:
    found = joined(tx, side) if sides.is_open(side) else side
    return None if found is None else read(found)


def is_same(one: Value, other: Value) -> bool:
    """Return whether two constants, or numbers of the graph, cannot be told apart."""
    if isinstance(one, compat.SymNodeVariable) or isinstance(other, compat.SymNodeVariable):
        return type(one) is type(other) and one.as_proxy().node is other.as_proxy().node
    return is_same_constant(one, other)


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
