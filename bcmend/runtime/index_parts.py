"""Indices of which only the data tell a part: ``x[first:last]``, ``x[row, 2]``.

Reads Dynamo's model of an index; says which dimensions of the tensor it names a part of by numbers
out of tensors, and what is known without them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch
from torch._dynamo.variables import (
    ConstantVariable,
    SliceVariable,
    TensorVariable,
    TupleVariable,
)
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.tensor import SymNodeVariable
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from bcmend.runtime import scalars
from bcmend.runtime.merge import constant, example_of

__all__ = ["Axis", "Item", "Part", "Slice", "is_item", "is_known", "part_of"]

_INDEX_TYPES: Final = (torch.int64, torch.int32, torch.int16, torch.int8)


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice with a bound that only the data tell; ``None`` for a bound that is left out."""

    start: VariableTracker | None
    stop: VariableTracker | None
    step: int


@dataclass(frozen=True, slots=True)
class Item:
    """An index that only the data tell."""

    number: VariableTracker


Axis = Slice | Item | None


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a tensor that an index names.

    Attributes:
        known: the index with a full slice for everything that only the data tell.
        axes: for each dimension of what ``known`` names, what the data tell of it.
    """

    known: TupleVariable
    axes: tuple[Axis, ...]

    @property
    def example(self) -> tuple[Any, ...]:
        return tuple(each.as_python_constant() for each in self.known.items)

    @property
    def is_whole(self) -> bool:
        """Whether ``known`` names the whole tensor as it is."""
        return all(each in (slice(None), Ellipsis) for each in self.example)


class _Other(Exception):
    """An index that is not read here."""


def part_of(tx: Any, dimensions: int, key: VariableTracker) -> Part | None:
    """Return what an index names; ``None`` for one of which the data tell nothing, or too much."""
    try:
        return _part(tx, dimensions, key)
    except _Other:
        return None


def _part(tx: Any, dimensions: int, key: VariableTracker) -> Part:
    """Read an index. Raises ``_Other``."""
    items = [each.realize() for each in key.items] if type(key) is TupleVariable else [key]
    taken = sum(not (is_known(each, None) or is_known(each, ...)) for each in items)
    if taken > dimensions or sum(is_known(each, ...) for each in items) > 1:
        raise _Other
    known: list[VariableTracker] = []
    axes: list[Axis] = []
    for each in items:
        axis = _axis(tx, each)
        known.append(each if axis is None else SliceVariable([constant(None)]))
        if axis is None and is_known(each, ...):
            axes.extend([None] * (dimensions - taken))
        elif axis is not None or not _is_number(each):
            axes.append(axis)
    if not any(axes):
        raise _Other
    if not any(is_known(each, ...) for each in items):
        axes.extend([None] * (dimensions - taken))
    return Part(TupleVariable(known), tuple(axes))


def is_known(value: VariableTracker, known: object) -> bool:
    """Whether a value is known to be ``None``, or an ellipsis."""
    return isinstance(value, ConstantVariable) and value.value is known


def _is_number(value: VariableTracker) -> bool:
    return isinstance(value, ConstantVariable) and type(value.value) is int


def _axis(tx: Any, value: VariableTracker) -> Axis:
    """Return what the data tell of a dimension; ``None`` where all is known."""
    if isinstance(value, SliceVariable):
        return _slice(tx, value)
    if is_item(tx, value):
        return Item(value)
    if is_known(value, None) or is_known(value, ...) or _is_number(value):
        return None
    raise _Other


def is_item(tx: Any, value: VariableTracker) -> bool:
    """Whether an index is the place of one item, which only the data tell."""
    return _depends_on_data(tx, value) or _is_tensor_index(value)


def _slice(tx: Any, value: SliceVariable) -> Slice | None:
    start, stop, step = (each.realize() for each in value.items)
    if all(isinstance(each, ConstantVariable) for each in (start, stop, step)):
        return None
    if not any(_depends_on_data(tx, each) for each in (start, stop, step)):
        raise _Other
    if not (is_known(step, None) or (_is_number(step) and step.as_python_constant() > 0)):
        raise _Other
    for bound in (start, stop):
        if not (is_known(bound, None) or _is_number(bound) or _is_symbol(bound)):
            raise _Other
    return Slice(
        None if is_known(start, None) else start,
        None if is_known(stop, None) else stop,
        1 if is_known(step, None) else step.as_python_constant(),
    )


def _is_symbol(value: VariableTracker) -> bool:
    return isinstance(value, SymNodeVariable) and isinstance(value.sym_num, torch.SymInt)


def _depends_on_data(tx: Any, value: VariableTracker) -> bool:
    if not isinstance(value, SymNodeVariable) or not _is_symbol(value):
        return False
    return bool(free_unbacked_symbols(value.sym_num)) or scalars.is_taken(tx, value)


def _is_tensor_index(value: VariableTracker) -> bool:
    """Whether a value is a tensor that torch takes for a number when it is an index."""
    if type(value) is not TensorVariable:
        return False
    example = example_of(value)
    return example.dim() == 0 and example.dtype in _INDEX_TYPES
