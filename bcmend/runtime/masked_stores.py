"""Stores to a part of a tensor that only the data tell, as a choice for every element.

``x[first:last] = v``, ``x[row, column] = v`` where the numbers come out of tensors. The part has
neither a known size nor a known place, which no graph within a graph can have, and outside of one
torch has to assume something of the size. Here the whole tensor gets ``torch.where(in the part, v,
what it holds)``. A value has to fit: along a slice that only the data tell it has one element, or
one for each place; in the second case, as for an index that may be out of range, a side exit has
the call made in plain Python where that does not hold.

Takes Dynamo's models of tensor, index and value; has the store written into the graph
(``masked_writes``), or leaves it to Dynamo.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial, reduce
from typing import Any, Final

import torch
from torch._dynamo.variables import BuiltinVariable, ConstantVariable, TensorVariable
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.tensor import SymNodeVariable
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true
from torch.utils._python_dispatch import _disable_current_modes

from bcmend.runtime import frames, guards, in_place, item_reads, lower, scalars, sites
from bcmend.runtime.held import holds
from bcmend.runtime.index_parts import Item, Part, part_of
from bcmend.runtime.masked_writes import Store, is_one, numbers_of_range
from bcmend.runtime.merge import constant, example_of
from bcmend.runtime.operations import storage_of
from bcmend.runtime.unread import KEPT

__all__ = ["install"]

#: Outside of arms, which work on a copy anyway, a pass over more elements is not worth it.
_ELEMENTS_AT_MOST: Final = 2**16
#: What every integer of 64 bits can be stored as without an error.
_TAKE_ALL_INTEGERS: Final = (torch.int64, torch.float32, torch.float64, torch.bool)


class _Other(Exception):
    """A store that is left to Dynamo."""


# Whether the value fits


def _require_storable(tx: Any, target: TensorVariable, value: VariableTracker) -> None:
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
    example = example_of(value)
    kept = [at for at, axis in enumerate(part.axes) if not isinstance(axis, Item)]
    surplus = example.dim() - len(kept)
    if not all(is_one(size) for size in example.shape[: max(surplus, 0)]):
        raise _Other
    sizes = [*[1] * -surplus, *example.shape[max(surplus, 0) :]]
    has_gradient = torch.is_grad_enabled() and example.requires_grad
    for size, at in zip(sizes, kept, strict=True):
        is_repeated = is_one(size) and not (part.axes[at] is None and is_one(form[at]))
        if is_repeated and has_gradient:
            raise _Other  # the sum of the gradients of all places has another order
        if is_one(size):
            continue
        if part.axes[at] is None:
            if not statically_known_true(size == form[at]):
                raise _Other
        elif free_unbacked_symbols(size) and numbers_of_range(tx, value) is None:
            raise _Other
        else:
            needs = True
    return needs


# What Dynamo calls


def _store(tx: Any, target: TensorVariable, key: VariableTracker, value: VariableTracker) -> None:
    """Write a store into the graph. Raises ``_Other`` before anything is written."""
    part = part_of(tx, example_of(target).dim(), key)
    if part is None:
        raise _Other
    _require_storable(tx, target, value)
    with tx.fake_mode:
        form = example_of(target)[part.example].shape
    # In no report, since no code was rewritten.
    site = sites.being_traced(tx, tx.f_code, "store", "guard")
    needs_exit = _needs_exit(tx, part, form, value)
    if needs_exit and not guards.can_exit(tx, site):
        raise _Other
    view = target
    if not part.is_whole:
        named = BuiltinVariable(operator.getitem).call_function(tx, [target, part.known], {})
        assert isinstance(named, TensorVariable)
        view = named
    misfits = Store(tx, part, view).write(value)
    if misfits:
        fails = reduce(partial(lower.either, tx), misfits)
        guards.make_side_exit(tx, site, fails, is_only_way=True)
    is_range = isinstance(value, TensorVariable) and numbers_of_range(tx, value) is not None
    if is_range and not holds(list(frames.named(tx)), value):
        value.as_proxy().node.meta[KEPT] = True  # its numbers were stored without it


def _store_to_view(
    tx: Any, target: TensorVariable, key: VariableTracker, value: VariableTracker
) -> bool:
    """Write a store to an item into the graph as one to the whole of a view; say whether it is.

    So is that of ``x[row] += 1``, which stores what it has read and changed.
    """
    example = example_of(target)
    if torch.is_grad_enabled() and example.requires_grad and example.is_leaf:
        return False  # which is an error
    if isinstance(value, TensorVariable):
        method, fits = "copy_", _can_be_copied(tx, target, key, value)
    else:
        method, fits = "fill_", _can_be_filled_with(example.dtype, value)
    view = item_reads.read(tx, target, key) if fits else None
    if view is not None:
        view.call_method(tx, method, [value], {})
    return view is not None


def _can_be_copied(
    tx: Any, target: TensorVariable, key: VariableTracker, value: TensorVariable
) -> bool:
    """Whether a tensor goes into the items that an index names, without a warning of torch's."""
    given = example_of(value)
    if type(value) is not TensorVariable:
        return False
    if given.is_complex() and not example_of(target).is_complex():
        return False
    return given.dim() <= _dimensions_of_items(tx, target, key)


def _dimensions_of_items(tx: Any, target: TensorVariable, key: VariableTracker) -> int:
    """Return how many dimensions the items have that an index names; -1 if it names none."""
    part = part_of(tx, example_of(target).dim(), key)
    return -1 if part is None else sum(not isinstance(axis, Item) for axis in part.axes)


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
                if _store_to_view(tx, variable, key.realize(), value.realize()):
                    return constant(None)
        found: VariableTracker = before(variable, tx, key, value)
        return found

    return store


def install() -> None:
    """Let Dynamo ask here first."""
    TensorVariable.method___setitem__ = _with_masks(  # type: ignore[method-assign]
        TensorVariable.method___setitem__
    )
