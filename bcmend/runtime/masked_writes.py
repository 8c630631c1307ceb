"""Write a store to a part of a tensor as a choice for every element.

Reads the part, whose bounds are numbers out of tensors, and the value; adds to the graph what
compares the bounds with the positions along each dimension, clamped as Python does, and one
``torch.where`` over the whole tensor. Returns the conditions under which the store fails.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch._dynamo.variables import ConstantVariable, ListVariable, TensorVariable
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.tensor import SymNodeVariable
from torch.fx import Node, Proxy
from torch.fx.experimental.symbolic_shapes import statically_known_true

from bcmend.runtime import calls, lower, scalars
from bcmend.runtime.index_parts import Axis, Item, Part, Slice
from bcmend.runtime.merge import constant, example_of

__all__ = ["Store", "is_one", "numbers_of_range"]


class Store:
    """A store being written into the graph."""

    def __init__(self, tx: Any, part: Part, view: TensorVariable) -> None:
        self._tx, self._part, self._view = tx, part, view
        self._example = example_of(view)
        self._misfits: list[TensorVariable] = []

    def write(self, value: VariableTracker) -> list[TensorVariable]:
        """Add the operations; return conditions under which eager execution would fail."""
        bounds = [self._bounds(at, axis) for at, axis in enumerate(self._part.axes)]
        given = self._fitted(value, bounds)
        mask = None
        for at, axis in enumerate(self._part.axes):
            if axis is not None:
                here = self._along(at, self._mask(at, axis, bounds[at]))
                mask = here if mask is None else self._call(torch.logical_and, mask, here)
        chosen = self._call(torch.where, mask, given, self._view)
        self._view.call_method(self._tx, "copy_", [chosen], {})
        return self._misfits

    def _call(self, function: Any, *arguments: Any, **named: Any) -> TensorVariable:
        return calls.function(self._tx, function, *arguments, **named)

    def _method(self, name: str, *arguments: Any, **named: Any) -> TensorVariable:
        return calls.method(self._tx, name, *arguments, **named)

    # Places

    def _size(self, tensor: TensorVariable, at: int) -> VariableTracker:
        return tensor.call_method(self._tx, "size", [constant(at)], {}).realize()

    def _number_of(self, size: VariableTracker) -> Any:
        """Return a size as an operand: a number, or a tensor of one that torch has a symbol for."""
        return size.value if isinstance(size, ConstantVariable) else self._number(size)

    def _places(self, at: int) -> TensorVariable:
        """Return the positions along a dimension."""
        size = self._size(self._view, at)
        return self._call(torch.arange, size, device=self._example.device)

    def _along(self, at: int, values: TensorVariable) -> TensorVariable:
        """Return one value for each position along a dimension in a form that broadcasts."""
        behind = self._example.dim() - 1 - at
        return self._method("reshape", values, (-1, *([1] * behind)))

    def _number(self, number: VariableTracker) -> TensorVariable:
        """Return an integer as a 0-d tensor beside the one that is stored to."""
        if isinstance(number, TensorVariable):
            return self._method("to", number, self._example.device, torch.int64)
        found = scalars.integer_tensor(self._tx, number)
        if example_of(found).device == self._example.device:
            return found
        return self._method("to", found, self._example.device)

    def _bounds(self, at: int, axis: Axis) -> tuple[TensorVariable, ...]:
        """Return the place of an item, or the first one of a slice and the one behind its last."""
        if axis is None:
            return ()
        size = self._number_of(self._size(self._view, at))
        if isinstance(axis, Slice):
            return self._bound(axis.start, 0, size), self._bound(axis.stop, size, size)
        number = self._from_the_end(self._number(axis.number), size)
        before, behind = self._call(torch.lt, number, 0), self._call(torch.ge, number, size)
        self._misfits.append(lower.either(self._tx, before, behind))
        return (number,)

    def _bound(self, number: VariableTracker | None, otherwise: Any, size: Any) -> TensorVariable:
        """Return a bound of a slice as Python clamps it."""
        if number is None:
            if isinstance(otherwise, TensorVariable):
                return otherwise
            return self._number(constant(otherwise))
        found = self._from_the_end(self._number(number), size)
        return self._at_most(self._call(torch.clamp, found, 0), size)

    def _at_most(self, values: TensorVariable, limit: Any) -> TensorVariable:
        if isinstance(limit, TensorVariable):
            return self._call(torch.minimum, values, limit)
        return self._call(torch.clamp, values, None, limit)

    def _from_the_end(self, number: TensorVariable, size: Any) -> TensorVariable:
        is_negative = self._call(torch.lt, number, 0)
        return self._call(torch.where, is_negative, self._call(torch.add, number, size), number)

    def _mask(
        self, at: int, axis: Slice | Item, bounds: tuple[TensorVariable, ...]
    ) -> TensorVariable:
        """Return which positions along a dimension are stored to."""
        places = self._places(at)
        if isinstance(axis, Item):
            return self._call(torch.eq, places, bounds[0])
        first, end = bounds
        behind, before = self._call(torch.ge, places, first), self._call(torch.lt, places, end)
        found = self._call(torch.logical_and, behind, before)
        if axis.step > 1:
            steps = self._call(torch.remainder, self._call(torch.sub, places, first), axis.step)
            found = self._call(torch.logical_and, found, self._call(torch.eq, steps, 0))
        return found

    # Values

    def _fitted(
        self, value: VariableTracker, bounds: Sequence[tuple[TensorVariable, ...]]
    ) -> TensorVariable:
        """Return the value in a form that broadcasts with the tensor."""
        like = self._example
        if isinstance(value, SymNodeVariable):
            return self._method("to", self._number(value), like.dtype)
        if not isinstance(value, TensorVariable):
            number = value.as_python_constant()
            return self._call(torch.full, (), number, dtype=like.dtype, device=like.device)
        kept = [at for at, axis in enumerate(self._part.axes) if not isinstance(axis, Item)]
        while example_of(value).dim() > len(kept):
            value = self._call(torch.squeeze, value, 0)
        kept = kept[len(kept) - example_of(value).dim() :]
        for own, at in enumerate(kept):
            value = self._one_for_each(value, own, at, bounds[at])
        if kept:
            axes = range(kept[0], len(self._part.axes))
            key = tuple(slice(None) if at in kept else None for at in axes)
            value = self._call(operator.getitem, value, key)
        return self._method("to", value, like.device, like.dtype)

    def _one_for_each(
        self, value: TensorVariable, own: int, at: int, bounds: tuple[TensorVariable, ...]
    ) -> TensorVariable:
        """Return a value with its elements at the places of a slice to which they belong."""
        axis = self._part.axes[at]
        if not isinstance(axis, Slice) or is_one(example_of(value).shape[own]):
            return value
        first, end = bounds
        length = self._call(torch.clamp, self._call(torch.sub, end, first), 0)
        turn = self._call(torch.sub, self._places(at), first)
        if axis.step > 1:
            length = self._call(torch.add, length, axis.step - 1)
            length, turn = (
                self._call(torch.div, each, axis.step, rounding_mode="floor")
                for each in (length, turn)
            )
        numbers = numbers_of_range(self._tx, value)
        if numbers is not None:
            return self._counted(numbers, length, turn)
        size = self._number_of(self._size(value, own))
        self._misfits.append(self._call(torch.ne, length, size))
        if size == 0:
            form = list(example_of(value).shape)
            form[own] = 1
            return self._method("new_zeros", value, tuple(form))
        if isinstance(size, TensorVariable):  # it may be 0, and then there is no item
            value, size = self._with_one_more(value, own), self._call(torch.add, size, 1)
        turn = self._at_most(self._call(torch.clamp, turn, 0), self._less_one(size))
        return self._call(torch.index_select, value, own, turn)

    def _with_one_more(self, value: TensorVariable, at: int) -> TensorVariable:
        """Return a tensor with zeros behind it along a dimension."""
        form = [self._size(value, each) for each in range(example_of(value).dim())]
        form[at] = constant(1)
        zeros = value.call_method(self._tx, "new_zeros", form, {})
        joined = ListVariable([value, zeros])
        return self._call(torch.cat, joined, at)

    def _less_one(self, size: Any) -> Any:
        return self._call(torch.sub, size, 1) if isinstance(size, TensorVariable) else size - 1

    def _counted(
        self,
        numbers: tuple[VariableTracker, VariableTracker],
        length: TensorVariable,
        turn: TensorVariable,
    ) -> TensorVariable:
        """Return the numbers of ``torch.arange`` at their places."""
        first, end = (self._number(each) for each in numbers)
        count = self._call(torch.sub, end, first)
        is_one = self._call(torch.eq, count, 1)  # which is stored at every place
        fits = lower.either(self._tx, is_one, self._call(torch.eq, count, length))
        fails = lower.either(
            self._tx, self._call(torch.lt, count, 0), lower.negated(self._tx, fits)
        )
        self._misfits.append(fails)
        turn = self._call(torch.where, is_one, 0, turn)
        return self._call(torch.add, turn, first)


def is_one(size: Any) -> bool:
    return statically_known_true(size == 1)


def numbers_of_range(
    tx: Any, value: TensorVariable
) -> tuple[VariableTracker, VariableTracker] | None:
    """Return the bounds of ``torch.arange(first, end)``, if a value is just that."""
    node, example = value.as_proxy().node, example_of(value)
    is_range = node.op == "call_function" and node.target is torch.arange
    if not is_range or example.dtype is not torch.int64 or example._version:
        return None
    if not set(node.kwargs) <= {"device", "dtype"} or len(node.args) > 2:
        return None
    found = [_bound_of_range(tx, each) for each in (0, *node.args)[-2:]]
    first, end = found
    return None if first is None or end is None else (first, end)


def _bound_of_range(tx: Any, bound: Any) -> VariableTracker | None:
    if type(bound) is int:
        return constant(bound)
    example = bound.meta.get("example_value") if isinstance(bound, Node) else None
    if not isinstance(example, torch.SymInt) or bound.graph is not tx.output.graph:
        return None
    return SymNodeVariable.create(tx, Proxy(bound, tx.output.current_tracer), example)
