"""What is done with a phi on each of its sides, as a branch on its predicate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeGuard

import torch

from bcmend.dynamo import compat, fx_graph, slots
from bcmend.dynamo.values import Value, items_in, made_of
from bcmend.tracing.heap import roots
from bcmend.tracing.lowering.branch_lowering import TracedBranch, attempt_to_lower
from bcmend.tracing.merging.lazy_phi import CellPhi, GatedPhi, LazyPhi, StoredPhi, UnreadPhi
from bcmend.tracing.merging.live_outs import phi_of
from bcmend.tracing.merging.location_phi import has_earlier_history, require_no_gradients
from bcmend.tracing.merging.merge import Join
from bcmend.tracing.merging.truth_of_phi import unread_in
from bcmend.tracing.numbers import predicates
from bcmend.tracing.output import deferred_exceptions, record_builder
from bcmend.tracing.sites.phi import Build
from bcmend.tracing.sites.refusal import Refusal
from bcmend.tracing.speculation.arm_failures import Raised
from bcmend.tracing.speculation.arms import Arm, ArmFailure, ArmTrace, trace_arm

#: A phi of which both sides and the predicate are at hand.
Open = GatedPhi | UnreadPhi

_TARGET: Final = torch.ops.higher_order.cond


def leaves(value: Value) -> Iterator[Value]:
    """Yield what a value may be."""
    if isinstance(value, LazyPhi):
        for side in value.sides:
            yield from leaves(side)
    else:
        yield value


def is_open(value: Value) -> TypeGuard[Open]:
    """Return whether a value is a phi whose sides are at hand."""
    if type(value) not in (GatedPhi, CellPhi, StoredPhi, UnreadPhi):
        return False
    assert isinstance(value, (GatedPhi, UnreadPhi))
    if isinstance(value, StoredPhi) and not value.is_whole:
        return False
    return _is_at_hand(value) and all(
        is_open(side) for side in value.sides if isinstance(side, LazyPhi)
    )


def _is_at_hand(value: Open) -> bool:
    return value.is_at_hand if isinstance(value, UnreadPhi) else True


def have_at_hand(value: Value) -> bool:
    """Return whether a value is such a phi.

    Raises:
        Falsified: it is one once the frame is traced again with both sides stored.
    """
    if is_open(value):
        return True
    inner = next(unread_in(value), None)
    if inner is None or inner.unbound or inner.predicate is None:
        return False
    inner.store_sides()


def like(phi: Open, predicate: Any, sides: Sequence[Value]) -> Open:
    """Return a phi of other sides, of the branch that another one is of."""
    if isinstance(phi, GatedPhi):
        return GatedPhi(phi.site, phi.form, phi.output, sides, predicate=predicate)
    return UnreadPhi(
        phi.site, phi.form, phi.output, sides, predicate=predicate, refusal=phi.refusal
    )


def on_side(tx: compat.Tracer, values: Sequence[Value], predicate: Any, truth: bool) -> list[Value]:
    """Return values, and what only they hold, in the form that they have where a truth is known."""
    made: dict[int, Value] = {}
    return [_on_side(tx, each, predicate, truth, made) for each in values]


def _on_side(
    tx: compat.Tracer, value: Value, predicate: Any, truth: bool, made: dict[int, Value]
) -> Value:
    """Return one of these values; ``made`` is what was made for others, by identity."""
    if isinstance(value, (GatedPhi, UnreadPhi)) and _is_at_hand(value):
        known: Any = value.predicate
        if known.as_proxy().node is not predicate.as_proxy().node:
            return value
        return _on_side(tx, value.sides[0 if truth else 1], predicate, truth, made)
    if isinstance(value, LazyPhi) or not value.is_realized():
        return value
    value = value.realize()
    if id(value) in made:
        return made[id(value)]
    parts = parts_of(tx, value)
    found = [_on_side(tx, each, predicate, truth, made) for each in parts]
    if all(before is after for before, after in zip(parts, found, strict=True)):
        return value
    is_tuple = isinstance(value, compat.TupleVariable)
    made[id(value)] = value.clone(items=found) if is_tuple else made_of(value, found)
    return made[id(value)]


def parts_of(tx: compat.Tracer, value: Value) -> list[Value]:
    """Return the items of a container of which a copy can take the place; else none."""
    if isinstance(value, compat.TupleVariable):
        return list(value.items)
    is_new = isinstance(value.mutation_type, compat.ValueMutationNew)
    return (items_in(value) if is_new and not roots.is_held(tx, value) else None) or []


def computed(
    tx: compat.Tracer,
    phi: Open,
    predicate: Any,
    given: Sequence[Value],
    sides: Sequence[Callable[[], Value]],
) -> Value | None:
    """Compute one thing where a predicate holds and another where not, as a branch does.

    ``phi`` says of which branch; ``given`` is what both compute with. ``None`` where a side cannot
    be computed.
    """
    put_slots_back = slots.remember(tx.output)
    traces = []
    for side in sides:
        arm = Arm(given[0], (compat.TupleVariable(list(given)),), partial(_call, side))
        trace = trace_arm(tx, _TARGET, arm, lambda: record_builder.open_arm(tx))
        traces.append(trace)
    one, other = traces
    if isinstance(one, ArmFailure) or isinstance(other, ArmFailure):
        put_slots_back()
        return _of_the_other(tx, phi, predicate, (one, other), sides)
    arms = one, other
    branch = TracedBranch(phi.site, predicate, arms, phi.form, predicate, _planned_by(phi))
    outcome = attempt_to_lower(tx, branch, fx_graph.Transaction(tx))
    if isinstance(outcome, Refusal):
        put_slots_back()
        return None
    reached = phi.site.outcome
    reached.lowering = phi.site.chosen_later(reached.lowering)
    return outcome


def _of_the_other(
    tx: compat.Tracer,
    phi: Open,
    predicate: Any,
    traces: tuple[ArmTrace | ArmFailure, ArmTrace | ArmFailure],
    sides: Sequence[Callable[[], Value]],
) -> Value | None:
    """Have the call made in plain Python where the one side is taken that raises."""
    failed = [each for each in traces if isinstance(each, ArmFailure)]
    raises = failed[0].raised is not Raised.UNKNOWN and not failed[0].spoiled
    if len(failed) > 1 or not (raises and deferred_exceptions.can_exit(tx, phi.site)):
        return None
    at = traces.index(failed[0])
    taken = predicates.negated(tx, predicate) if at else predicate
    deferred_exceptions.make_side_exit(tx, phi.site, taken)
    return sides[1 - at]()


def _call(side: Callable[[], Value], tracer: Any) -> Value:
    return side()


def _planned_by(phi: Open) -> Callable[[Join, tuple[Value, Value]], Build]:
    def plan(join: Join, sides: tuple[Value, Value]) -> Build:
        merger = join.merger
        one, other = (side.realize() for side in sides)
        if isinstance(phi, StoredPhi) and has_earlier_history(list(leaves(phi))):
            require_no_gradients((one, other), f"the attribute {phi.name}")
        if not any(isinstance(side, LazyPhi) for side in (one, other)):
            merged = merger.attempt(lambda: merger.merge(one, other))
            if not isinstance(merged, Refusal):
                return merged
        plans = [merger.adopt(one, then_side=True), merger.adopt(other, then_side=False)]
        return lambda merged: phi_of(join, [each(merged) for each in plans], None)

    return plan
