"""Stores to data-dependent parts of a tensor, as a select for every element.

``x[first:last] = v``, ``x[row, column] = v`` where the numbers come out of tensors. The part has
neither a known size nor a known place, which no graph within a graph can have, and outside of one
torch has to assume something of the size. Here the whole tensor gets ``torch.where(in the part, v,
what it holds)``. A value has to fit: along a data-dependent slice it has one element, or one for
each place; in the second case, as for an index that may be out of range, a side exit has the call
made in plain Python where that does not hold.

Takes Dynamo's models of tensor, index and value; has the store written into the graph
(``masked_writes``), or leaves it to Dynamo.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial, reduce
from typing import Any, Final

import torch

from bcmend import meta_keys
from bcmend.dynamo import compat, fx_graph, handlers
from bcmend.dynamo.handlers import PASS, Answer, Call
from bcmend.dynamo.values import Value, constant, example_of, fake_mode_of
from bcmend.tracing.effects import memory_form
from bcmend.tracing.effects.operator_runs import storage_of
from bcmend.tracing.heap import roots
from bcmend.tracing.indexing import item_reads, stacked_items
from bcmend.tracing.indexing.index_parts import Item, Part, part_of
from bcmend.tracing.indexing.masked_writes import Store, is_one, numbers_of_range
from bcmend.tracing.numbers import arm_selections, predicates
from bcmend.tracing.output import deferred_exceptions
from bcmend.tracing.sites import capture_mode, site_table
from bcmend.tracing.sites.refusal import NotThisWay, Refusal, attempt

Tensor = compat.TensorVariable

#: Outside of arms, which work on a copy anyway, a pass over more elements is not worth it: one over
#: 2**16 takes 13 times as long as a store of one element (0.1 ms), one over 2**18 takes 48 times.
_ELEMENTS_AT_MOST: Final = 2**16
#: What every integer of 64 bits can be stored as without an error.
_TAKE_ALL_INTEGERS: Final = (torch.int64, torch.float32, torch.float64, torch.bool)


# Whether the value fits


def _is_storable(tx: compat.Tracer, target: Tensor, value: Value) -> bool:
    """Return whether a tensor can have such a store, and the value can be stored in it."""
    example = example_of(target)
    is_plain = example.layout is torch.strided and not (example.is_quantized or example.is_nested)
    if not is_plain or compat.free_unbacked_symbols(example) or _is_required_leaf(example):
        return False
    count = example.numel()
    is_small = isinstance(count, int) and count <= _ELEMENTS_AT_MOST
    is_in_arm = tx.output.current_tracer.parent is not None
    if not (is_small or is_in_arm) or memory_form.may_overlap_itself(example):
        return False
    if isinstance(value, Tensor):
        return _can_be_selected(example, value)
    if isinstance(value, compat.SymNodeVariable):
        return isinstance(value.sym_num, torch.SymInt) and example.dtype in _TAKE_ALL_INTEGERS
    return _can_be_filled_with(example.dtype, value)


def _is_required_leaf(example: torch.Tensor) -> bool:
    """Return whether changing a tensor in place is an error of autograd's."""
    return torch.is_grad_enabled() and example.requires_grad and example.is_leaf


def _can_be_selected(example: torch.Tensor, value: Tensor) -> bool:
    given = example_of(value)
    if type(value) is not Tensor or given.layout is not torch.strided:
        return False
    # Torch warns of complex numbers. One storage is an error, if they have a place in common.
    warns = given.is_complex() and not example.is_complex()
    return not warns and storage_of(example) != storage_of(given)


def _can_be_filled_with(dtype: torch.dtype, value: Value) -> bool:
    number = value.value if isinstance(value, compat.ConstantVariable) else None
    if not isinstance(number, (bool, int, float, complex)):
        return False
    try:
        with compat._disable_current_modes():
            torch.empty((), dtype=dtype).fill_(number)
    except (RuntimeError, TypeError, OverflowError):
        return False
    return True


def _needs_exit(tx: compat.Tracer, part: Part, form: Sequence[Any], value: Any) -> bool:
    """Return whether it is data-dependent if a store fails. Raises ``Refusal`` if it always does.

    ``form`` is the shape of what ``part.known`` names.
    """
    needs = any(isinstance(axis, Item) for axis in part.axes)
    if not isinstance(value, Tensor):
        return needs
    example = example_of(value)
    slices = [at for at, axis in enumerate(part.axes) if not isinstance(axis, Item)]
    surplus = example.dim() - len(slices)
    if not all(is_one(size) for size in example.shape[: max(surplus, 0)]):
        raise NotThisWay()
    sizes = [*[1] * -surplus, *example.shape[max(surplus, 0) :]]
    has_gradient = torch.is_grad_enabled() and example.requires_grad
    for size, at in zip(sizes, slices, strict=True):
        is_known = part.axes[at] is None
        if is_one(size):
            # The sum of the gradients of all places has another order.
            if has_gradient and not (is_known and is_one(form[at])):
                raise NotThisWay()
        elif is_known:
            if not compat.statically_known_true(size == form[at]):
                raise NotThisWay()
        elif compat.free_unbacked_symbols(size) and numbers_of_range(tx, value) is None:
            raise NotThisWay()
        else:
            needs = True
    return needs


# A mask


def _store_by_mask(tx: compat.Tracer, target: Tensor, mask: Value, value: Value) -> bool:
    """Write ``x[mask] = v`` as a select where ``v`` gets a gradient; say whether that is done.

    The backward of such a store takes as many rows as the mask has places, and Inductor fails on
    their number.
    """
    if type(mask) is not Tensor or type(value) is not Tensor or not torch.is_grad_enabled():
        return False
    example, given, places = (example_of(each) for each in (target, value, mask))
    rest = example.dim() - places.dim()
    if (
        places.dtype is not torch.bool
        or not given.requires_grad
        or _is_required_leaf(example)
        or not _can_be_selected(example, value)
        or (example.dtype, example.device) != (given.dtype, given.device)
        or places.device != example.device
        or not 0 <= given.dim() <= rest
    ):
        return False
    sizes = zip(reversed(given.shape), reversed(example.shape), strict=False)
    fits = all(is_one(size) or compat.statically_known_true(size == of) for size, of in sizes)
    covers = zip(places.shape, example.shape, strict=False)
    if not (fits and all(compat.statically_known_true(size == of) for size, of in covers)):
        return False
    wide: Any = mask
    for _ in range(rest):
        wide = fx_graph.method(tx, "unsqueeze", wide, -1)
    selected = fx_graph.function(tx, torch.where, wide, value, target)
    target.call_method(tx, "copy_", [selected], {})
    return True


# What Dynamo calls


def _store(tx: compat.Tracer, target: Tensor, key: Any, value: Value) -> None:
    """Write a store into the graph. Raises ``Refusal`` before anything is written."""
    part = part_of(tx, example_of(target).dim(), key)
    if part is None or not _is_storable(tx, target, value):
        raise NotThisWay()
    try:
        with fake_mode_of(tx):
            form = example_of(target)[part.example].shape
    except IndexError:  # a known place that is out of bounds, as it is for torch
        raise NotThisWay() from None
    # In no report, since no code was rewritten.
    site = site_table.site_being_traced(tx, tx.f_code, "store", "guard")
    if _needs_exit(tx, part, form, value) and not deferred_exceptions.can_exit(tx, site):
        raise NotThisWay()
    view: Any = target
    if not part.is_whole:
        view = compat.BuiltinVariable(operator.getitem).call_function(tx, [target, part.known], {})
    misfits = Store(tx, part, view).write(value)
    if misfits:
        fails = reduce(partial(predicates.either, tx), misfits)
        deferred_exceptions.make_side_exit(tx, site, fails)
    is_range = isinstance(value, Tensor) and numbers_of_range(tx, value) is not None
    if is_range and not roots.is_held(tx, value):
        # Its numbers were stored without it.
        value.as_proxy().node.meta[meta_keys.BESIDE_NUMBER] = True


def _store_to_view(tx: compat.Tracer, target: Tensor, key: Any, value: Any) -> bool:
    """Write a store to an item into the graph as one to the whole of a view; say whether it is.

    So is that of ``x[row] += 1``, which stores what it has read and changed.
    """
    example = example_of(target)
    if _is_required_leaf(example):
        return False
    if isinstance(value, Tensor):
        method, fits = "copy_", _can_be_copied(tx, target, key, value)
    else:
        method, fits = "fill_", _can_be_filled_with(example.dtype, value)
    view = item_reads.read(tx, target, key) if fits else None
    if view is not None:
        view.call_method(tx, method, [value], {})
    return view is not None


def _can_be_copied(tx: compat.Tracer, target: Tensor, key: Any, value: Tensor) -> bool:
    """Return whether a tensor goes into the items of an index, without a warning of torch's."""
    given, example = example_of(value), example_of(target)
    if type(value) is not Tensor or (given.is_complex() and not example.is_complex()):
        return False
    part = part_of(tx, example.dim(), key)
    slices = () if part is None else [axis for axis in part.axes if not isinstance(axis, Item)]
    return part is not None and given.dim() <= len(slices)


@handlers.tensor_method("__setitem__")
def _set_item(call: Call) -> Answer:
    """Answer ``x[key] = value``."""
    tx, tensor = call.tx, call.owner
    is_plain = type(tensor) is Tensor and len(call.args) == 2 and not call.kwargs
    if not is_plain or not capture_mode.in_mended_code(tx):
        return PASS
    key, value = (each.realize() for each in call.args)
    complete = arm_selections.key_for(tx, key, value)
    if complete is not key:
        kept: Value = tensor.call_method(tx, "__setitem__", [complete, value], {})
        return kept
    if (stacked := stacked_items.with_stacked(tx, key)) is not None:
        done: Value = tensor.call_method(tx, "__setitem__", [stacked, value], {})
        return done
    if not _is_required_leaf(example_of(tensor)):
        if (steps := item_reads.slices_first(tx, key)) is not None:
            view = item_reads.part_at(tx, tensor, steps[0])
            return view.call_method(tx, "__setitem__", [steps[1], value], {})
        views = item_reads.as_one_item(tx, tensor, key)
        if views is not None:
            return views[0].call_method(tx, "__setitem__", [views[1], value], {})
    stored = attempt(lambda: _store(tx, tensor, key, value))
    is_done = (
        not isinstance(stored, Refusal)
        or _store_to_view(tx, tensor, key, value)
        or _store_by_mask(tx, tensor, key, value)
    )
    return constant(None) if is_done else PASS
