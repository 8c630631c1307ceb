"""Results of a branch that are views of another one, on both sides in the same way.

Only the other one is merged, and the views are made of what it has become, so that they share
memory as they do in eager execution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from bcmend.dynamo import compat, fx_graph
from bcmend.dynamo.values import TensorValue, Value, example_of
from bcmend.tracing.effects import memory_form
from bcmend.tracing.effects.operator_runs import storage_of
from bcmend.tracing.merging.merge import Pair
from bcmend.tracing.sites.refusal import Refusal


@dataclass(frozen=True, slots=True)
class View:
    """How a result lies in another, which is the one at position ``base``."""

    base: int
    base_stride: tuple[int, ...]
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    is_detached: bool

    def of(self, tx: compat.Tracer, base: Value) -> TensorValue:
        """Make the view of what was merged."""
        dense = example_of(base)  # type: ignore[arg-type]
        if (dense.stride(), dense.storage_offset()) != (self.base_stride, 0):
            raise Refusal("alias-changed", "what was merged has another form in memory")
        if self.is_detached:
            base = detached = fx_graph.method(tx, "detach", base)
            if (self.size, self.stride, self.offset) == (tuple(dense.size()), self.base_stride, 0):
                return detached
        return fx_graph.function(tx, torch.as_strided, base, self.size, self.stride, self.offset)


def views_among(pairs: Sequence[Pair], *, by_cond: bool) -> dict[int, View]:
    """Return the results, by position, that can be made of another."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for at, pair in enumerate(pairs):
        if _may_be_made(pair, by_cond=by_cond):
            groups.setdefault(_memory_of(pair), []).append(at)
    found: dict[int, View] = {}
    for group in groups.values():
        if len(group) > 1:
            found |= _views_in(pairs, group)
    return found


def _memory_of(pair: Pair) -> tuple[int, ...]:
    """Return the storages on both sides; 0 where there is no value."""
    return tuple(0 if side is None else storage_of(example_of(side)) for side in pair.sides)


def _views_in(pairs: Sequence[Pair], group: Sequence[int]) -> dict[int, View]:
    bases: list[int] = []
    for at in group:
        if not any(_view(base, pairs[at], pairs[base]) for base in bases):
            bases = [base for base in bases if not _view(at, pairs[base], pairs[at])] + [at]
    return {
        at: view
        for at in group
        for base in reversed(bases)  # the view of the first one stays
        if at not in bases and (view := _view(base, pairs[at], pairs[base]))
    }


def with_views(
    tx: compat.Tracer, merged: Sequence[Value], views: Mapping[int, View]
) -> list[Value]:
    """Return all results: those that were merged, and the views that are made of them."""
    rest, total = iter(merged), len(merged) + len(views)
    known = {at: next(rest) for at in range(total) if at not in views}
    made = {at: view.of(tx, known[view.base]) for at, view in views.items()}
    return [known[at] if at in known else made[at] for at in range(total)]


def _may_be_made(pair: Pair, *, by_cond: bool) -> bool:
    """Return whether a result is a tensor that is merged, or copied by ``torch.cond``."""
    return type(pair.present) is compat.TensorVariable and (by_cond or len(pair.values) == 2)


def _view(base: int, pair: Pair, other: Pair) -> View | None:
    sides = zip(pair.sides, other.sides, strict=True)
    views = [
        _view_of(base, example_of(one), example_of(two)) for one, two in sides if one is not None
    ]
    return views[0] if all(view is not None and view == views[0] for view in views) else None


def _view_of(base: int, one: torch.Tensor, other: torch.Tensor) -> View | None:
    """Return how a tensor lies in another one, which is dense; ``None`` if it does not."""
    if one.dtype is not other.dtype or (one.is_conj(), one.is_neg()) != (False, False):
        return None
    places, others = memory_form.reach(one), memory_form.reach(other)
    if not places or not others or places.start < others.start or places.stop > others.stop:
        return None
    if not compat.is_non_overlapping_and_dense_or_false(other):
        return None
    if one.requires_grad and not _is_of_one_history(one, other):
        return None
    is_detached = other.requires_grad and not one.requires_grad
    forms = tuple(other.stride()), tuple(one.size()), tuple(one.stride())
    return View(base, *forms, places.start - others.start, is_detached)


def _is_of_one_history(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether autograd takes two tensors for views of one."""
    bases = [each if each._base is None else each._base for each in (one, other)]
    return other.requires_grad and bases[0] is bases[1] and all(map(may_be_changed, (one, other)))


def may_be_changed(example: torch.Tensor) -> bool:
    """Return whether autograd lets a view be changed in place; true of what is no view."""
    return (
        example._base is None or compat._get_creation_meta(example) == compat.CreationMeta.DEFAULT
    )
