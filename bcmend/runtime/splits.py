"""Go on in either form of a value that has one on each side of a branch.

Reads the operands of an instruction that code was split in front of; has both halves traced with
the value in the form that it has there, as the arms of a branch on the value's own condition. A
condition that is known already, since the instruction stands in such a half, is not asked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch._dynamo.variables import ConstDictVariable, TupleVariable
from torch._dynamo.variables.base import ValueMutationNew, VariableTracker

from bcmend.runtime import ladder
from bcmend.runtime.arms import Arm
from bcmend.runtime.per_trace import kept
from bcmend.runtime.sites import LiveSite
from bcmend.runtime.unmerged import Choice, Unmerged

__all__ = ["first_open", "split"]


def first_open(values: Iterable[VariableTracker]) -> Unmerged | None:
    """Return the first value among ``values``, and in tuples of them, that has two forms."""
    return next(_open_in(values), None)


def _open_in(values: Iterable[VariableTracker]) -> Iterator[Unmerged]:
    for value in values:
        if isinstance(value, Unmerged):
            yield value
        elif value.is_realized():
            yield from _open_in(_parts(value.realize()))


def _parts(value: VariableTracker) -> Sequence[VariableTracker]:
    if isinstance(value, TupleVariable):
        return list(value.items)
    known: Any = value
    return list(known.items.values()) if _is_made_for_a_call(value) else ()


def _is_made_for_a_call(value: VariableTracker) -> bool:
    return type(value) is ConstDictVariable and isinstance(value.mutation_type, ValueMutationNew)


def split(
    tx: Any,
    target: Any,
    site: LiveSite,
    form: int,
    condition: VariableTracker,
    arms: tuple[Arm, Arm],
) -> VariableTracker | None:
    """Return the live-outs of both halves, a tuple; ``None`` where that cannot be."""
    truth = next((truth for node, truth in _known(tx) if node is _node(condition)), None)
    halves = _half(arms[0], condition, True), _half(arms[1], condition, False)
    if truth is not None:
        return (halves[0] if truth else halves[1]).call(tx)
    return ladder.mend_branch(tx, target, site, form, condition, halves)


def _node(condition: VariableTracker) -> Any:
    return condition.as_proxy().node


@dataclass(frozen=True, slots=True)
class _Half(Arm):
    """An arm in which a condition is known."""

    condition: Any = None
    truth: bool = False

    def call(self, tx: Any) -> VariableTracker:
        known = _known(tx)
        known.append((_node(self.condition), self.truth))
        try:
            return Arm.call(self, tx)
        finally:
            known.pop()


def _half(arm: Arm, condition: VariableTracker, truth: bool) -> _Half:
    inputs = TupleVariable([_decided(each, condition, truth) for each in arm.inputs.items])
    arguments = (*arm.arguments[:-1], inputs)
    return _Half(arm.function, arguments, condition=condition, truth=truth)


def _known(tx: Any) -> list[tuple[Any, bool]]:
    """Return the conditions that are known where the trace is, and their truths."""
    return kept(tx.output, "known", list)


def _decided(value: VariableTracker, condition: VariableTracker, truth: bool) -> VariableTracker:
    """Return ``value`` in the form that it has under the condition."""
    if isinstance(value, Choice):
        if _node(value.predicate) is _node(condition):
            return _decided(value.one if truth else value.other, condition, truth)
        return value
    if isinstance(value, Unmerged) or not value.is_realized():
        return value
    value = value.realize()
    parts = _parts(value)
    decided = [_decided(each, condition, truth) for each in parts]
    if all(before is after for before, after in zip(parts, decided, strict=True)):
        return value
    if isinstance(value, TupleVariable):
        return value.clone(items=decided)
    items = dict(zip(value.items, decided, strict=True))  # type: ignore[attr-defined]
    return ConstDictVariable(items, value.user_cls, mutation_type=ValueMutationNew())  # type: ignore[attr-defined]
