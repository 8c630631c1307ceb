"""Go on in either form of a value that has one on each side of a branch.

Reads the operands of an instruction that code was split in front of; has both halves traced with
the value in the form that it has there, as the arms of a branch on the value's own condition. A
condition that is known already, since the instruction stands in such a half, is not asked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch._dynamo import config
from torch._dynamo.variables import ConstDictVariable, ListVariable, TupleVariable
from torch._dynamo.variables.base import ValueMutationNew, VariableTracker

from bcmend.runtime import ladder, sizes
from bcmend.runtime.arms import Arm
from bcmend.runtime.held import has_a_name
from bcmend.runtime.open_ranges import Exhausted, OpenIterator
from bcmend.runtime.per_trace import kept
from bcmend.runtime.sites import LiveSite
from bcmend.runtime.unmerged import Choice, Unmerged

__all__ = ["first_open", "split"]


def first_open(tx: Any, values: Iterable[VariableTracker]) -> Unmerged | OpenIterator | None:
    """Return the first value among ``values``, and in what only they hold, that has two forms."""
    return next(_open_in(tx, values), None)


def _open_in(tx: Any, values: Iterable[VariableTracker]) -> Iterator[Unmerged | OpenIterator]:
    for value in values:
        if isinstance(value, Unmerged):
            yield value
        elif isinstance(value, OpenIterator):
            if not value.has_one:
                yield value
        elif value.is_realized():
            yield from _open_in(tx, _parts(tx, value.realize()))


def _parts(tx: Any, value: VariableTracker) -> list[VariableTracker]:
    """Return what a container holds of which a copy would not be missed."""
    known: Any = value
    if isinstance(value, TupleVariable):
        return list(known.items)
    if isinstance(value.mutation_type, ValueMutationNew) and not has_a_name(tx, value):
        if type(value) is ListVariable:
            return list(known.items)
        if type(value) is ConstDictVariable:
            return list(known.items.values())
    return []


def split(
    tx: Any,
    target: Any,
    site: LiveSite,
    form: int,
    found: Choice | OpenIterator,
    arms: tuple[Arm, Arm],
) -> VariableTracker | None:
    """Return the live-outs of both halves, a tuple; ``None`` where that cannot be.

    ``found`` is the value that has two forms, and tells under which condition it has which.
    """
    condition = found.predicate if isinstance(found, Choice) else found.condition(tx)
    truth = next((truth for node, truth in _known(tx) if node is _node(condition)), None)
    then_half, else_half = (
        _Half(arm.function, arm.arguments, condition=condition, truth=truth).decided(tx, found)
        for arm, truth in zip(arms, (True, False), strict=True)
    )
    halves = then_half, else_half
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

    def decided(self, tx: Any, found: VariableTracker) -> _Half:
        """Return the half with each of its inputs in the form that it has there."""
        inputs = [
            each.in_half(self.truth)
            if isinstance(each, OpenIterator) and each is found
            else _decided(tx, each, self.condition, self.truth)
            for each in self.inputs.items
        ]
        return replace(self, arguments=(*self.arguments[:-1], TupleVariable(inputs)))

    def with_inputs(self, inputs: Sequence[VariableTracker]) -> _Half:
        # An iterator that is at its end here has also come to it where a loop ends.
        given = [
            known if isinstance(known, Exhausted) else each
            for known, each in zip(self.inputs.items, inputs, strict=True)
        ]
        return replace(self, arguments=(*self.arguments[:-1], TupleVariable(given)))

    def call(self, tx: Any) -> VariableTracker:
        known = _known(tx)
        known.append((_node(self.condition), self.truth))
        try:
            # An assertion that is known to fail here is to raise, as in Python: Dynamo's own form
            # of it takes tensors.
            with (
                config.patch(rewrite_assert_with_torch_assert=False),
                sizes.facts(tx, self._facts()),
            ):
                return Arm.call(self, tx)
        finally:
            known.pop()

    def _facts(self) -> list[Any]:
        """Return what follows of numbers from the conditions that are known here."""
        iterators = [each for each in self.inputs.items if isinstance(each, OpenIterator)]
        return [fact for each in iterators for fact in each.facts()]


def _known(tx: Any) -> list[tuple[Any, bool]]:
    """Return the conditions that are known where the trace is, and their truths."""
    return kept(tx.output, "known", list)


def _decided(
    tx: Any, value: VariableTracker, condition: VariableTracker, truth: bool
) -> VariableTracker:
    """Return ``value`` in the form that it has under the condition."""
    if isinstance(value, Choice):
        if _node(value.predicate) is _node(condition):
            return _decided(tx, value.one if truth else value.other, condition, truth)
        return value
    if isinstance(value, Unmerged) or not value.is_realized():
        return value
    value = value.realize()
    parts = _parts(tx, value)
    decided = [_decided(tx, each, condition, truth) for each in parts]
    if all(before is after for before, after in zip(parts, decided, strict=True)):
        return value
    known: Any = value
    if isinstance(value, TupleVariable):
        return known.clone(items=decided)  # type: ignore[no-any-return]
    if type(value) is ListVariable:
        return ListVariable(decided, mutation_type=ValueMutationNew())
    items = dict(zip(known.items, decided, strict=True))
    return ConstDictVariable(items, known.user_cls, mutation_type=ValueMutationNew())
