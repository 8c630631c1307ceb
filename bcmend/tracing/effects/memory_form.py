"""Where the items of a tensor lie in its memory, and a merged tensor that has them in such places.

A select gives a dense tensor, also of two that have gaps in memory or repeat an item. A program
sees the difference in ``stride()``, and in all that it hands out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch

from bcmend.dynamo import compat, fx_graph
from bcmend.dynamo.values import TensorValue, example_of
from bcmend.tracing.effects.operator_runs import storage_of
from bcmend.tracing.sites.refusal import Refusal

#: The size and the stride of a dimension, which may be symbols.
_Dimension: TypeAlias = tuple[Any, Any]


def reach(tensor: torch.Tensor) -> range | None:
    """Return where in its storage a tensor lies; ``None`` if that is not known."""
    if tensor.layout is not torch.strided:
        return None
    numbers = (tensor.storage_offset(), *tensor.size(), *tensor.stride())
    if not all(isinstance(number, int) for number in numbers):
        return None
    first = int(tensor.storage_offset())
    if 0 in tensor.size():
        return range(first, first)
    return range(
        first, first + sum((size - 1) * stride for size, stride in _dimensions(tensor)) + 1
    )


def may_overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors of one storage may have an element in common.

    Tensors whose elements lie between one another in the storage are taken to have one.
    """
    places, others = reach(one), reach(other)
    if places is None or others is None or one.itemsize != other.itemsize:
        return True
    return max(places.start, others.start) < min(places.stop, others.stop)


def repeats_an_item(example: torch.Tensor) -> bool:
    """Return whether several elements surely have one place, as those of ``x.expand``."""
    dimensions = zip(example.size(), example.stride(), strict=True)
    return any(stride == 0 and isinstance(size, int) and size > 1 for size, stride in dimensions)


def is_partly_in(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors surely have some of their memory in common, and not all.

    So eager execution asks before it writes to one what it reads of the other.
    """
    places = reach(one), reach(other)
    if storage_of(one) != storage_of(other) or None in places:
        return False
    if not all(map(compat.is_non_overlapping_and_dense_or_false, (one, other))):
        return False
    are_one = places[0] == places[1] and one.stride() == other.stride()
    return not are_one and may_overlap(one, other)


def may_overlap_itself(example: torch.Tensor) -> bool:
    """Return whether two elements may have the same place in memory."""
    return _extent(_dimensions(example)) is None


def has_strides_of(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors of one size have the same strides, where these matter."""
    return all(
        any(map(compat.statically_known_true, (size == 1, left == right)))
        for size, left, right in zip(other.size(), one.stride(), other.stride(), strict=True)
    )


def can_be_given(example: torch.Tensor) -> bool:
    """Return whether items lie apart in memory, but for those that a dimension repeats."""
    is_dense = compat.is_non_overlapping_and_dense_or_false(example)
    return is_dense or _extent(_stored(example)) is not None


def as_in(tx: compat.Tracer, merged: TensorValue, example: torch.Tensor) -> TensorValue:
    """Return ``merged`` with the strides of ``example``, which has the same size.

    Raises ``Refusal`` where two items of that may lie in one place.
    """
    is_empty = compat.statically_known_true(example.numel() == 0)
    is_sparse = example.layout is not torch.strided
    if is_sparse or is_empty or has_strides_of(example_of(merged), example):
        return merged
    stored = _stored(example)
    extent = _extent(stored)
    if extent is None:
        raise Refusal("arms-differ", f"items in one place: strides {example.stride()}")
    whole = merged
    for dimension, (size, _) in enumerate(stored):
        if not compat.statically_known_true(size == example.size()[dimension]):
            merged = fx_graph.method(tx, "narrow", merged, dimension, 0, 1)
    sizes, strides = (tuple(_in_graph(tx, each[at]) for each in stored) for at in (0, 1))
    base = fx_graph.method(tx, "new_zeros", merged, (_in_graph(tx, extent),))
    base = fx_graph.function(tx, torch.as_strided_scatter, base, merged, sizes, strides, 0)
    placed = fx_graph.function(tx, torch.as_strided, base, sizes, strides, 0)
    return placed if merged is whole else fx_graph.method(tx, "expand_as", placed, whole)


def _in_graph(tx: compat.Tracer, number: Any) -> Any:
    """Return a size or stride as the graph has it, where it is a number out of a tensor."""
    if not isinstance(number, torch.SymInt):
        return number
    return tx.output.current_tracer.bound_symbols.get(number.node.expr, number)


def _dimensions(example: torch.Tensor) -> list[_Dimension]:
    return list(zip(example.size(), example.stride(), strict=True))


def _stored(example: torch.Tensor) -> list[_Dimension]:
    """Return size and stride of each dimension, of one item where they are all the same."""
    return [
        (1 if compat.statically_known_true(stride == 0) else size, stride)
        for size, stride in _dimensions(example)
    ]


def _extent(dimensions: Sequence[_Dimension]) -> Any:
    """Return how much memory a tensor lies in; ``None`` if it may have two items in one place."""
    longer = [each for each in dimensions if not compat.statically_known_true(each[0] == 1)]
    if all(isinstance(stride, int) for _, stride in longer):
        longer.sort(key=lambda each: each[1], reverse=True)
    extent = whole = dense = 1
    is_known = compat.statically_known_true
    while longer:
        # The products are never smaller than the extent; of symbols they are often all that is
        # known. ``dense`` is the stride that torch gives a dense tensor, which may be empty.
        around = [
            at
            for at in reversed(range(len(longer)))
            if any(is_known(longer[at][1] >= least) for least in (whole, extent, dense))
        ]
        if not around:
            return None
        at = next((each for each in around if is_known(longer[each][1] == dense)), around[0])
        size, stride = longer.pop(at)
        extent, whole = extent + (size - 1) * stride, size * stride
        dense = torch.sym_max(size, 1) * stride  # type: ignore[no-untyped-call]
    return extent


def difference(one: torch.Tensor, other: torch.Tensor) -> str:
    """Return the visible respect in which two tensors differ; empty if in none."""
    for what in ("dtype", "device", "layout"):
        left, right = getattr(one, what), getattr(other, what)
        if left != right:
            return f"{what} {left} on one side, {right} on the other"
    if one.layout is not torch.strided:
        return f"layout {one.layout}"
    for flag in ("is_conj", "is_neg"):  # of a view that no selected tensor is
        if getattr(one, flag)() or getattr(other, flag)():
            return f"{flag} of a tensor on one side"
    same = one.dim() == other.dim() and all(
        compat.statically_known_true(left == right)
        for left, right in zip(one.shape, other.shape, strict=True)
    )
    if not same:
        return f"shape {tuple(one.shape)} on one side, {tuple(other.shape)} on the other"
    if not has_strides_of(other, one):
        return f"strides {one.stride()} on one side, {other.stride()} on the other"
    return "" if can_be_given(one) else f"items in one place: strides {one.stride()}"
