"""Indices with data-dependent parts: ``x[first:last]``, ``x[row, 2]``.

Reads Dynamo's model of an index; says which dimensions of the tensor it indexes by numbers out of
tensors, and what is known without them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch

from bcmend.dynamo import compat
from bcmend.dynamo.models import containers
from bcmend.dynamo.values import (
    Value,
    constant,
    example_of,
    is_batched,
    is_symbolic_int,
    is_unbacked,
)
from bcmend.tracing.numbers import scalars
from bcmend.tracing.sites.refusal import NotThisWay, Refusal, attempt

INDEX_TYPES: Final = (torch.int64, torch.int32, torch.int16, torch.int8)


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice with a data-dependent bound; ``None`` for a bound that is left out."""

    start: Value | None
    stop: Value | None
    step: int


@dataclass(frozen=True, slots=True)
class Item:
    """A data-dependent index of one item."""

    number: Value


Axis = Slice | Item | None


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a tensor that an index names.

    Attributes:
        known: the index with a full slice for everything that is data-dependent.
        axes: for each dimension of what ``known`` names, what is data-dependent of it.
    """

    known: compat.TupleVariable
    axes: tuple[Axis, ...]

    @property
    def example(self) -> tuple[Any, ...]:
        return tuple(each.as_python_constant() for each in self.known.items)

    @property
    def is_whole(self) -> bool:
        """Return whether ``known`` names the whole tensor as it is."""
        return all(each in (slice(None), Ellipsis) for each in self.example)


def part_of(tx: compat.Tracer, dimensions: int, key: Value) -> Part | None:
    """Return what an index names; ``None`` for one without data-dependent parts, or not handled."""
    found = attempt(lambda: _part(tx, dimensions, key))
    return None if isinstance(found, Refusal) else found


def items_of(key: Value) -> list[Value]:
    """Return the parts of an index, one if it is no tuple."""
    return [each.realize() for each in key.items] if type(key) is compat.TupleVariable else [key]


def _part(tx: compat.Tracer, dimensions: int, key: Value) -> Part:
    items = items_of(key)
    unnamed = dimensions - sum(map(names_dimension, items))
    ellipses = sum(is_known(each, ...) for each in items)
    if unnamed < 0 or ellipses > 1:
        raise NotThisWay()
    known: list[Value] = []
    axes: list[Axis] = []
    for each in items:
        axis = _axis(tx, each)
        known.append(each if axis is None else containers.whole_slice(constant(None)))
        if is_known(each, ...):
            axes.extend([None] * unnamed)
        elif not is_number(each):
            axes.append(axis)
    if not any(axes):
        raise NotThisWay()
    return Part(compat.TupleVariable(known), (*axes, *[None] * (0 if ellipses else unnamed)))


def names_dimension(value: Value) -> bool:
    """Return whether a part of an index is one of a dimension: no ``None``, and no ellipsis."""
    return not (is_known(value, None) or is_known(value, ...))


def is_known(value: Value, known: object) -> bool:
    """Return whether a value is known to be ``None``, or an ellipsis."""
    return isinstance(value, compat.ConstantVariable) and value.value is known


def is_number(value: Value) -> bool:
    """Return whether an index is the known place of one item."""
    return isinstance(value, compat.ConstantVariable) and type(value.value) is int


def _axis(tx: compat.Tracer, value: Value) -> Axis:
    """Return what is data-dependent of a dimension; ``None`` where all is known."""
    if isinstance(value, compat.SliceVariable):
        return _slice(tx, value)
    if is_item(tx, value):
        return Item(value)
    if is_number(value) or not names_dimension(value):
        return None
    raise NotThisWay()


def names_place(tx: compat.Tracer, value: Value) -> bool:
    """Return whether a part of an index that is handled is data-dependent."""
    return _axis(tx, value) is not None


def is_item(tx: compat.Tracer, value: Value) -> bool:
    """Return whether an index is the data-dependent place of one item."""
    return _depends_on_data(tx, value) or _is_tensor_index(value)


def _slice(tx: compat.Tracer, value: compat.SliceVariable) -> Slice | None:
    start, stop, step = (each.realize() for each in value.items)
    if all(isinstance(each, compat.ConstantVariable) for each in (start, stop, step)):
        return None
    stride = 1 if is_known(step, None) else step.as_python_constant() if is_number(step) else 0
    if stride <= 0 or not (_depends_on_data(tx, start) or _depends_on_data(tx, stop)):
        raise NotThisWay()
    first, end = (None if is_known(each, None) else each for each in (start, stop))
    if not all(each is None or is_number(each) or is_symbolic_int(each) for each in (first, end)):
        raise NotThisWay()
    return Slice(first, end, stride)


def _depends_on_data(tx: compat.Tracer, value: Value) -> bool:
    return is_symbolic_int(value) and (is_unbacked(value) or scalars.is_taken(tx, value))


def _is_tensor_index(value: Value) -> bool:
    """Return whether a value is a tensor that torch takes for a number when it is an index."""
    if type(value) is not compat.TensorVariable:
        return False
    example = example_of(value)
    return example.dim() == 0 and example.dtype in INDEX_TYPES and not is_batched(example)
