"""Go on in two halves of code that reads a phi without a common form, or a data-dependent place.

Code was split in front of an instruction. Both halves are traced with the operand in the form that
it has there, as the arms of a branch on its own condition. A condition that is known already, since
the instruction stands in such a half, is not asked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final

from bcmend.dynamo import compat
from bcmend.dynamo.models import containers
from bcmend.dynamo.slots import Slot, pushed
from bcmend.dynamo.values import Value
from bcmend.tracing.entry import branch_mending
from bcmend.tracing.indexing import open_places
from bcmend.tracing.indexing.open_places import OpenPlace
from bcmend.tracing.loops.open_ranges import OpenIterator
from bcmend.tracing.merging.lazy_phi import GatedPhi, LazyPhi
from bcmend.tracing.numbers import ahead, size_questions
from bcmend.tracing.search import budget
from bcmend.tracing.sites import body_states
from bcmend.tracing.sites.site_table import LiveSite
from bcmend.tracing.speculation.arms import Arm
from bcmend.tracing.two_forms import sides

#: So many conditions around a further one are undecided where numbers are computed in front of the
#: graph instead, if the arguments have them: each condition doubles what is traced.
_NESTED: Final = 4

#: Code is split at so many places for one condition where that is computed in front of the graph
#: instead, if it can be and much was tried: what is read in a frame is read in those that it
#: returns to as well.
_PLACES: Final = 3


def first_open(
    tx: compat.Tracer, site: LiveSite, operands: Sequence[Value], *, subscripts: bool
) -> LazyPhi | OpenIterator | OpenPlace | None:
    """Return the first phi among operands, and in what only they hold.

    With ``subscripts`` also the place of an item, if it is still to be decided.
    """
    found = next(_open_in(tx, operands), None)
    return _open_place(tx, site, operands) if found is None and subscripts else found


def _open_place(tx: compat.Tracer, site: LiveSite, operands: Sequence[Value]) -> OpenPlace | None:
    place = open_places.open_place(tx, operands)
    if place is None or place.is_decided:
        return None
    site.outcome.reads_item = True
    if len(place.keys) > open_places.ITEMS_AT_MOST:
        site.refuse("too-deep", f"one of {len(place.keys)} items")
        return None
    return place


def _open_in(tx: compat.Tracer, values: Iterable[Value]) -> Iterator[LazyPhi | OpenIterator]:
    for value in values:
        if isinstance(value, LazyPhi):
            yield value
        elif isinstance(value, OpenIterator):
            if not value.has_one:
                yield value
        elif value.is_realized():
            yield from _open_in(tx, sides.parts_of(tx, value.realize()))


def split_path(
    tx: compat.Tracer,
    target: Any,
    site: LiveSite,
    form: int,
    found: GatedPhi | OpenIterator | OpenPlace,
    arms: branch_mending.Arms,
) -> Value | Arm | None:
    """Return the live-outs of both halves, a tuple; ``None`` where that cannot be.

    Or return the half that is taken, as ``mend_branch`` does.
    """
    if isinstance(found, OpenPlace):
        found = found.computed(tx)
    condition = found.predicate if isinstance(found, GatedPhi) else found.condition(tx)
    truth = next((truth for node, truth in _known(tx) if node is _node(condition)), None)
    then_half, else_half = (
        _Half(arm.function, arm.arguments, condition=condition, truth=side).decided(tx, found)
        for arm, side in zip(arms, (True, False), strict=True)
    )
    halves = then_half, else_half
    if truth is not None:
        return halves[not truth].call(tx)
    if isinstance(found, GatedPhi):
        if len(_known(tx)) >= _NESTED:
            body_states.take_ahead(tx)
        places = _SPLIT_FOR.of(tx.output).setdefault(_node(condition), set())
        places.add(site.key)
        if len(places) >= _PLACES and budget.has_tried_much():
            ahead.take_condition(tx, condition, site)
    return branch_mending.mend_branch(tx, target, site, form, condition, halves)


def _node(condition: Value) -> Any:
    return condition.as_proxy().node


@dataclass(frozen=True, slots=True)
class _Half(Arm):
    """An arm in which a condition is known."""

    condition: Any = None
    truth: bool = False
    place: OpenPlace | None = None

    def decided(self, tx: compat.Tracer, found: Value | OpenPlace) -> _Half:
        """Return the half with each of its inputs in the form that it has there."""
        if isinstance(found, OpenPlace):
            return replace(self, place=found.in_half(self.truth))
        on_side = sides.on_side(tx, self.inputs.items, self.condition, self.truth)
        inputs = [
            each.in_half(self.truth) if isinstance(each, OpenIterator) and each is found else known
            for each, known in zip(self.inputs.items, on_side, strict=True)
        ]
        return replace(self, arguments=(*self.arguments[:-1], compat.TupleVariable(inputs)))

    def with_inputs(self, inputs: Sequence[Value]) -> _Half:
        # An iterator that is at its end here is so where a loop ends as well.
        given = [
            known if isinstance(known, containers.ExhaustedRange) else each
            for known, each in zip(self.inputs.items, inputs, strict=True)
        ]
        return replace(self, arguments=(*self.arguments[:-1], compat.TupleVariable(given)))

    def call(self, tx: compat.Tracer) -> Value:
        iterators = [each for each in self.inputs.items if isinstance(each, OpenIterator)]
        # An assertion that is known to fail here is to raise, as in Python: Dynamo's own form of it
        # takes tensors.
        with (
            pushed(_known(tx), (_node(self.condition), self.truth)),
            compat.dynamo_config.patch(rewrite_assert_with_torch_assert=False),
            size_questions.facts(tx, [fact for each in iterators for fact in each.facts()]),
            nullcontext() if self.place is None else open_places.holding(tx, self.place),
        ):
            return Arm.call(self, tx)


#: The sites at which code was split, by the nodes of the conditions.
_SPLIT_FOR: Final[Slot[dict[Any, set[str]]]] = Slot(dict, rolls_back=False)

_KNOWN: Final[Slot[list[tuple[Any, bool]]]] = Slot(list, rolls_back=False)


def _known(tx: compat.Tracer) -> list[tuple[Any, bool]]:
    """Return the conditions that are known here in the trace, and their truths."""
    return _KNOWN.of(tx.output)
