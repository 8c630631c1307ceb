"""Stores to a part of a tensor that only the data tell, as a choice for every element.

``x[first:last] = v``, ``x[row, column] = v`` where the numbers come out of tensors. The part has
neither a known size nor a known place, which no graph within a graph can have, and outside of one
torch has to assume something of the size. Here the numbers are compared with the positions along
each dimension, and the whole tensor gets ``torch.where(in the part, v, what it holds)``. Bounds are
clamped as Python does. A value has to fit: along a slice that only the data tell it has one element,
or one for each place; in the second case, as for an index that may be out of range, a side exit has
the call made in plain Python where that does not hold.

Takes Dynamo's models of tensor, index and value; adds the operations of the store to the graph, or
leaves the store to Dynamo.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Final

import torch
from torch._dynamo.variables import (
    BuiltinVariable,
    ConstantVariable,
    SliceVariable,
    TensorVariable,
    TupleVariable,
)
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builder import wrap_fx_proxy
from torch._dynamo.variables.tensor import SymNodeVariable
from torch.fx import Node, Proxy
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true
from torch.utils._python_dispatch import _disable_current_modes

from bcmend.runtime import frames, guards, in_place, lower, scalars, sites
from bcmend.runtime.merge import constant, example_of
from bcmend.runtime.operations import storage_of
from bcmend.runtime.sites import LiveSite
from bcmend.runtime.unmerged import holds
from bcmend.runtime.unread import KEPT

__all__ = ["install"]

#: Outside of arms, which work on a copy anyway, a pass over more elements is not worth it.
_ELEMENTS_AT_MOST: Final = 2**16
_INDEX_TYPES: Final = (torch.int64, torch.int32, torch.int16, torch.int8)
#: What every integer of 64 bits can be stored as without an error.
_TAKE_ALL_INTEGERS: Final = (torch.int64, torch.float32, torch.float64, torch.bool)


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
    """A store that is left to Dynamo."""


# What is stored where


def _part(tx: Any, dimensions: int, key: VariableTracker) -> Part:
    """Read an index. Raises ``_Other`` for one that has nothing for the data to tell."""
    items = [each.realize() for each in key.items] if type(key) is TupleVariable else [key]
    taken = sum(not (_is(each, None) or _is(each, ...)) for each in items)
    if taken > dimensions or sum(_is(each, ...) for each in items) > 1:
        raise _Other
    known: list[VariableTracker] = []
    axes: list[Axis] = []
    for each in items:
        axis = _axis(tx, each)
        known.append(each if axis is None else SliceVariable([constant(None)]))
        if axis is None and _is(each, ...):
            axes.extend([None] * (dimensions - taken))
        elif axis is not None or not _is_number(each):
            axes.append(axis)
    if not any(axes):
        raise _Other
    if not any(_is(each, ...) for each in items):
        axes.extend([None] * (dimensions - taken))
    return Part(TupleVariable(known), tuple(axes))


def _is(value: VariableTracker, known: object) -> bool:
    return isinstance(value, ConstantVariable) and value.value is known


def _is_number(value: VariableTracker) -> bool:
    return isinstance(value, ConstantVariable) and type(value.value) is int


def _axis(tx: Any, value: VariableTracker) -> Axis:
    """Return what the data tell of a dimension; ``None`` where all is known."""
    if isinstance(value, SliceVariable):
        return _slice(tx, value)
    if _depends_on_data(tx, value) or _is_tensor_index(value):
        return Item(value)
    if _is(value, None) or _is(value, ...) or _is_number(value):
        return None
    raise _Other


def _slice(tx: Any, value: SliceVariable) -> Slice | None:
    start, stop, step = (each.realize() for each in value.items)
    if not any(_depends_on_data(tx, each) for each in (start, stop, step)):
        return None
    if not (_is(step, None) or (_is_number(step) and step.as_python_constant() > 0)):
        raise _Other
    for bound in (start, stop):
        if not (_is(bound, None) or _is_number(bound) or _is_symbol(bound)):
            raise _Other
    return Slice(
        None if _is(start, None) else start,
        None if _is(stop, None) else stop,
        1 if _is(step, None) else step.as_python_constant(),
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


# Whether the value fits


def _require_storable(tx: Any, target: TensorVariable, part: Part, value: VariableTracker) -> None:
    """Raise ``_Other`` for a tensor or a value that such a store cannot have."""
    example = example_of(target)
    is_plain = example.layout is torch.strided and not (example.is_quantized or example.is_nested)
    if not is_plain or free_unbacked_symbols(example) or in_place.may_overlap_itself(example):
        raise _Other
    if torch.is_grad_enabled() and example.requires_grad and example.is_leaf:
        raise _Other  # which is an error
    count = example.numel()
    is_small = isinstance(count, int) and count <= _ELEMENTS_AT_MOST
    if not is_small and tx.output.current_tracer.parent is None:
        raise _Other
    if isinstance(value, TensorVariable):
        _require_tensor_fits(target, value)
    elif isinstance(value, SymNodeVariable):
        if not isinstance(value.sym_num, torch.SymInt) or example.dtype not in _TAKE_ALL_INTEGERS:
            raise _Other
    elif not _can_be_filled_with(example.dtype, value):
        raise _Other


def _require_tensor_fits(target: TensorVariable, value: TensorVariable) -> None:
    example, given = example_of(target), example_of(value)
    if type(value) is not TensorVariable or given.layout is not torch.strided:
        raise _Other
    if given.is_complex() and not example.is_complex():
        raise _Other  # torch warns
    if storage_of(example) == storage_of(given):
        raise _Other  # an error, if they have a place in common


def _can_be_filled_with(dtype: torch.dtype, value: VariableTracker) -> bool:
    number = value.value if isinstance(value, ConstantVariable) else None
    if not isinstance(number, (bool, int, float, complex)):
        return False
    try:
        with _disable_current_modes():
            torch.empty((), dtype=dtype).fill_(number)
    except (RuntimeError, TypeError, OverflowError):
        return False
    return True


def _needs_exit(tx: Any, part: Part, form: Sequence[Any], value: VariableTracker) -> bool:
    """Whether only the data tell if a store is possible. Raises ``_Other`` if it never is."""
    needs = any(isinstance(axis, Item) for axis in part.axes)
    if not isinstance(value, TensorVariable):
        return needs
    sizes = list(example_of(value).shape)
    kept = [at for at, axis in enumerate(part.axes) if not isinstance(axis, Item)]
    while len(sizes) > len(kept):
        if not _is(constant(_is_one(sizes.pop(0))), True):
            raise _Other
    for size, at in zip(reversed(sizes), reversed(kept), strict=False):
        if _is_one(size):
            continue
        if part.axes[at] is None:
            if free_unbacked_symbols(size) or not statically_known_true(size == form[at]):
                raise _Other
            continue
        needs = True
        if free_unbacked_symbols(size) and _numbers_of_range(tx, value) is None:
            raise _Other
    return needs


# The store


class _Store:
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
        return _call(self._tx, "call_function", function, *arguments, **named)

    def _method(self, name: str, *arguments: Any, **named: Any) -> TensorVariable:
        return _call(self._tx, "call_method", name, *arguments, **named)

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
        if not isinstance(axis, Slice) or _is_one(example_of(value).shape[own]):
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
        numbers = _numbers_of_range(self._tx, value)
        if numbers is not None:
            return self._counted(numbers, length, turn)
        size = self._number_of(self._size(value, own))
        self._misfits.append(self._call(torch.ne, length, size))
        if size == 0:
            form = list(example_of(value).shape)
            form[own] = 1
            return self._method("new_zeros", value, tuple(form))
        turn = self._at_most(self._call(torch.clamp, turn, 0), self._call_less_one(size))
        return self._call(torch.index_select, value, own, turn)

    def _call_less_one(self, size: Any) -> Any:
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
        fails = lower.either(self._tx, self._call(torch.lt, count, 0), lower.negated(self._tx, fits))
        self._misfits.append(fails)
        turn = self._call(torch.where, is_one, 0, turn)
        return self._call(torch.add, turn, first)


def _is_one(size: Any) -> bool:
    return statically_known_true(size == 1)


def _numbers_of_range(
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


def _call(tx: Any, kind: str, target: Any, *arguments: Any, **named: Any) -> TensorVariable:
    given = tuple(
        each.as_proxy() if isinstance(each, VariableTracker) else each for each in arguments
    )
    result = wrap_fx_proxy(tx, tx.output.create_proxy(kind, target, given, named))
    assert isinstance(result, TensorVariable)
    return result


# What Dynamo calls


def _site(tx: Any) -> LiveSite:
    """Return the site of the store being traced; in no report, since no code was rewritten."""
    key = f"{tx.f_globals.get('__name__', '')}.{tx.f_code.co_qualname}:{tx.lineno}:store"
    found = sites.find(key)
    if found is None or found.origin.co_filename != tx.f_code.co_filename:
        found = LiveSite(key, "guard", tx.f_code, line=tx.lineno)
        sites.register(found)
    return found


def _store(tx: Any, target: TensorVariable, key: VariableTracker, value: VariableTracker) -> None:
    """Write a store into the graph. Raises ``_Other`` before anything is written."""
    part = _part(tx, example_of(target).dim(), key)
    _require_storable(tx, target, part, value)
    with tx.fake_mode:
        form = example_of(target)[part.example].shape
    site = _site(tx)
    needs_exit = _needs_exit(tx, part, form, value)
    if needs_exit and not guards.can_exit(tx, site):
        raise _Other
    view = target
    if not part.is_whole:
        view = BuiltinVariable(operator.getitem).call_function(tx, [target, part.known], {})
        assert isinstance(view, TensorVariable)
    misfits = _Store(tx, part, view).write(value)
    if misfits:
        fails = reduce(partial(lower.either, tx), misfits)
        guards.make_side_exit(tx, site, fails, is_only_way=True)
    if isinstance(value, TensorVariable) and not holds(list(frames.named(tx)), value):
        if _numbers_of_range(tx, value) is not None:
            value.as_proxy().node.meta[KEPT] = True  # its numbers were stored without it


def _with_masks(before: Any) -> Any:
    """Return what answers ``x[key] = value``."""

    def store(
        variable: TensorVariable, tx: Any, key: VariableTracker, value: VariableTracker
    ) -> VariableTracker:
        if type(variable) is TensorVariable and scalars.may_take(tx):
            try:
                _store(tx, variable, key.realize(), value.realize())
                return constant(None)
            except _Other:
                pass
        found: VariableTracker = before(variable, tx, key, value)
        return found

    return store


def install() -> None:
    """Let Dynamo ask here first."""
    TensorVariable.method___setitem__ = _with_masks(  # type: ignore[method-assign]
        TensorVariable.method___setitem__
    )
