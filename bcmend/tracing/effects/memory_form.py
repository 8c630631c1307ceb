"""The strides of a merged tensor: those that it has on both sides.

A select gives a dense tensor, also of two that have gaps in memory or repeat an item. A program
sees the difference in ``stride()``, and in all that it hands out.
"""

from __future__ import annotations

import torch

from bcmend.dynamo import compat, fx_graph
from bcmend.dynamo.values import TensorValue, example_of
from bcmend.tracing.sites.refusal import Refusal

_Dimension = tuple[int, int]


def can_be_given(example: torch.Tensor) -> bool:
    """Return whether items lie apart in memory, but for those that a dimension repeats."""
    is_dense = compat.is_non_overlapping_and_dense_or_false(example)
    return is_dense or _extent(_stored(example)) is not None


def as_in(tx: compat.Tracer, merged: TensorValue, example: torch.Tensor) -> TensorValue:
    """Return ``merged`` with the strides of ``example``, which has the same size.

    Raises ``Refusal`` where two items of that may lie in one place.
    """
    if _is_same(example_of(merged), example):
        return merged
    stored = _stored(example)
    extent = _extent(stored)
    if extent is None:
        raise Refusal("arms-differ", f"items in one place: strides {example.stride()}")
    for dimension, (size, _) in enumerate(stored):
        if not compat.statically_known_true(size == example.size()[dimension]):
            merged = fx_graph.method(tx, "narrow", merged, dimension, 0, 1)
    sizes, strides = (tuple(each[at] for each in stored) for at in (0, 1))
    base = fx_graph.method(tx, "new_zeros", merged, (extent,))
    base = fx_graph.function(tx, torch.as_strided_scatter, base, merged, sizes, strides, 0)
    placed = fx_graph.function(tx, torch.as_strided, base, sizes, strides, 0)
    if sizes != tuple(example.size()):
        placed = fx_graph.method(tx, "expand", placed, tuple(example.size()))
    return placed


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors of one size lie in memory in the same way."""
    if other.layout is not torch.strided or compat.statically_known_true(other.numel() == 0):
        return True
    return all(
        any(map(compat.statically_known_true, (size == 1, left == right)))
        for size, left, right in zip(other.size(), one.stride(), other.stride(), strict=True)
    )


def _stored(example: torch.Tensor) -> list[_Dimension]:
    """Return size and stride of each dimension, of one item where they are all the same."""
    return [
        (1 if compat.statically_known_true(stride == 0) else size, stride)
        for size, stride in zip(example.size(), example.stride(), strict=True)
    ]


def _extent(dimensions: list[_Dimension]) -> int | None:
    """Return how much memory a tensor lies in; ``None`` if it may have two items in one place."""
    longer = [each for each in dimensions if not compat.statically_known_true(each[0] == 1)]
    if all(isinstance(stride, int) for _, stride in longer):
        longer.sort(key=lambda each: each[1], reverse=True)
    extent = 1
    for size, stride in reversed(longer):
        if not compat.statically_known_true(stride >= extent):
            return None
        extent = extent + (size - 1) * stride
    return extent
