"""Write a store to a part of a tensor as a select for every element.

Reads the part, whose bounds are numbers out of tensors, and the value; adds to the graph what
compares the bounds with the positions along each dimension, clamped as Python does, and one
``torch.where`` over the whole tensor. Returns the conditions under which the store fails.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from torch.fx import Node, Proxy

from bcmend.dynamo import compat, fx_graph
from bcmend.dynamo.values import Value, constant, example_of
from bcmend.tracing.indexing.index_parts import Axis, Item, Part, Slice
from bcmend.tracing.numbers import predicates, scalars

Tensor = compat.TensorVariable


class Store:
    """A store being written into the graph."""

    def __init__(self, tx: compat.Tracer, part: Part, view: Tensor) -> None:
        self._tx, self._part, self._view = tx, part, view
        self._example = example_of(view)
        self._misfits: list[Tensor] = []

    def write(self, value: Value) -> list[Tensor]:
        """Add the operations; return conditions under which eager execution would fail."""
        axes = list(enumerate(self._part.axes))
        bounds = [self._bounds(at, axis) for at, axis in axes]
        given = self._fitted(value, bounds)
        masks = [self._mask(at, axis, bounds[at]) for at, axis in axes if axis is not None]
        mask = reduce(lambda one, other: self._call(torch.logical_and, one, other), masks)
        chosen = self._call(torch.where, mask, given, self._view)
        self._view.call_method(self._tx, "copy_", [chosen], {})
        return self._misfits

    def _call(self, function: Any, *arguments: Any, **named: Any) -> Tensor:
        return fx_graph.function(self._tx, function, *arguments, **named)

    def _method(self, name: str, *arguments: Any) -> Tensor:
        return fx_graph.method(self._tx, name, *arguments)

    # Places

    def _size(self, tensor: Tensor, at: int) -> Value:
        return tensor.call_method(self._tx, "size", [constant(at)], {}).realize()

    def _size_operand(self, tensor: Tensor, at: int) -> Any:
        """Return a size as an operand: a number, or a 0-d tensor if torch has a symbol for it."""
        size = self._size(tensor, at)
        return size.value if isinstance(size, compat.ConstantVariable) else self._number(size)

    def _places(self, at: int) -> Tensor:
        """Return the positions along a dimension."""
        size = self._size(self._view, at)
        return self._call(torch.arange, size, device=self._example.device)

    def _number(self, number: Value) -> Tensor:
        """Return an integer as a 0-d tensor beside the one that is stored to."""
        device = self._example.device
        if isinstance(number, Tensor):
            return self._method("to", number, device, torch.int64)
        found = scalars.integer_tensor(self._tx, number)
        return found if example_of(found).device == device else self._method("to", found, device)

    def _bounds(self, at: int, axis: Axis) -> tuple[Tensor, ...]:
        """Return the place of an item, or the first one of a slice and the one behind its last."""
        if axis is None:
            return ()
        size = self._size_operand(self._view, at)
        if isinstance(axis, Slice):
            return self._bound(axis.start, 0, size), self._bound(axis.stop, size, size)
        number = self._from_the_end(self._number(axis.number), size)
        before, behind = self._call(torch.lt, number, 0), self._call(torch.ge, number, size)
        self._misfits.append(predicates.either(self._tx, before, behind))
        return (number,)

    def _bound(self, number: Value | None, default: Any, size: Any) -> Tensor:
        """Return a bound of a slice as Python clamps it."""
        if number is None:
            return default if isinstance(default, Tensor) else self._number(constant(default))
        found = self._from_the_end(self._number(number), size)
        return self._at_most(self._call(torch.clamp, found, 0), size)

    def _at_most(self, values: Tensor, limit: Any) -> Tensor:
        if isinstance(limit, Tensor):
            return self._call(torch.minimum, values, limit)
        return self._call(torch.clamp, values, None, limit)

    def _from_the_end(self, number: Tensor, size: Any) -> Tensor:
        is_negative = self._call(torch.lt, number, 0)
        return self._call(torch.where, is_negative, self._call(torch.add, number, size), number)

    def _mask(self, at: int, axis: Slice | Item, bounds: tuple[Tensor, ...]) -> Tensor:
        """Return which positions along a dimension are stored to, in a form that broadcasts."""
        places = self._places(at)
        if isinstance(axis, Item):
            found = self._call(torch.eq, places, bounds[0])
        else:
            first, end = bounds
            behind, before = self._call(torch.ge, places, first), self._call(torch.lt, places, end)
            found = self._call(torch.logical_and, behind, before)
            if axis.step > 1:
                steps = self._call(torch.remainder, self._call(torch.sub, places, first), axis.step)
                found = self._call(torch.logical_and, found, self._call(torch.eq, steps, 0))
        trailing = self._example.dim() - 1 - at
        return self._method("reshape", found, (-1, *([1] * trailing)))

    # Values

    def _fitted(self, value: Value, bounds: Sequence[tuple[Tensor, ...]]) -> Tensor:
        """Return the value in a form that broadcasts with the tensor."""
        like = self._example
        if isinstance(value, compat.SymNodeVariable):
            return self._method("to", self._number(value), like.dtype)
        if not isinstance(value, Tensor):
            number = value.as_python_constant()
            return self._call(torch.full, (), number, dtype=like.dtype, device=like.device)
        slices = [at for at, axis in enumerate(self._part.axes) if not isinstance(axis, Item)]
        while example_of(value).dim() > len(slices):
            value = self._call(torch.squeeze, value, 0)
        slices = slices[len(slices) - example_of(value).dim() :]
        for own, at in enumerate(slices):
            value = self._one_for_each(value, own, at, bounds[at])
        if slices:
            axes = range(slices[0], len(self._part.axes))
            key = tuple(slice(None) if at in slices else None for at in axes)
            value = self._call(operator.getitem, value, key)
        return self._method("to", value, like.device, like.dtype)

    def _one_for_each(self, value: Tensor, own: int, at: int, bounds: tuple[Tensor, ...]) -> Tensor:
        """Return a value with its elements at the places of a slice to which they belong."""
        axis = self._part.axes[at]
        if not isinstance(axis, Slice) or is_one(example_of(value).shape[own]):
            return value
        first, end = bounds
        length = self._call(torch.clamp, self._call(torch.sub, end, first), 0)
        offset = self._call(torch.sub, self._places(at), first)
        if axis.step > 1:
            length = self._call(torch.add, length, axis.step - 1)
            length, offset = (
                self._call(torch.div, each, axis.step, rounding_mode="floor")
                for each in (length, offset)
            )
        numbers = numbers_of_range(self._tx, value)
        if numbers is not None:
            return self._counted(numbers, length, offset)
        size = self._size_operand(value, own)
        self._misfits.append(self._call(torch.ne, length, size))
        if size == 0:
            form = list(example_of(value).shape)
            form[own] = 1
            return self._method("new_zeros", value, tuple(form))
        last = size
        if isinstance(size, Tensor):  # it may be 0, and then there is no item
            value = self._with_one_more(value, own)
        else:
            last = size - 1
        offset = self._at_most(self._call(torch.clamp, offset, 0), last)
        return self._call(torch.index_select, value, own, offset)

    def _with_one_more(self, value: Tensor, at: int) -> Tensor:
        """Return a tensor with zeros behind it along a dimension."""
        form = [self._size(value, each) for each in range(example_of(value).dim())]
        form[at] = constant(1)
        zeros = value.call_method(self._tx, "new_zeros", form, {})
        return self._call(torch.cat, compat.ListVariable([value, zeros]), at)

    def _counted(self, numbers: tuple[Value, Value], length: Tensor, offset: Tensor) -> Tensor:
        """Return the numbers of ``torch.arange`` at their places."""
        first, end = (self._number(each) for each in numbers)
        count = self._call(torch.sub, end, first)
        is_one = self._call(torch.eq, count, 1)  # which is stored at every place
        fits = predicates.either(self._tx, is_one, self._call(torch.eq, count, length))
        misfit = predicates.negated(self._tx, fits)
        fails = predicates.either(self._tx, self._call(torch.lt, count, 0), misfit)
        self._misfits.append(fails)
        return self._call(torch.add, self._call(torch.where, is_one, 0, offset), first)


def is_one(size: Any) -> bool:
    return compat.statically_known_true(size == 1)


def numbers_of_range(tx: compat.Tracer, value: Tensor) -> tuple[Value, Value] | None:
    """Return the bounds of ``torch.arange(first, end)``, if a value is just that."""
    node, example = value.as_proxy().node, example_of(value)
    is_range = node.op == "call_function" and node.target is torch.arange
    if not is_range or example.dtype is not torch.int64 or example._version:
        return None
    if not set(node.kwargs) <= {"device", "dtype"} or len(node.args) > 2:
        return None
    first, end = (_bound_of_range(tx, each) for each in (0, *node.args)[-2:])
    return None if first is None or end is None else (first, end)


def _bound_of_range(tx: compat.Tracer, bound: Any) -> Value | None:
    if type(bound) is int:
        return constant(bound)
    example = bound.meta.get("example_value") if isinstance(bound, Node) else None
    if not isinstance(example, torch.SymInt) or bound.graph is not tx.output.graph:
        return None
    return compat.SymNodeVariable.create(tx, Proxy(bound, tx.output.current_tracer), example)
