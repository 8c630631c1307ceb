"""Which sides of a branch a graph looks for, since no call has taken them yet (``canaries``)."""

from __future__ import annotations

from bcmend.dynamo import compat
from bcmend.dynamo.values import TensorValue, Value, constant
from bcmend.tracing.numbers import predicates
from bcmend.tracing.output import deferred_exceptions, record_builder
from bcmend.tracing.output.record_builder import Draft, Kind
from bcmend.tracing.sites import nesting_limits
from bcmend.tracing.sites.site_table import LiveSite

#: The truths of a condition, each with what says that a call takes that side.
Sides = list[tuple[bool, TensorValue]]


def of_branch(tx: compat.Tracer, site: LiveSite, condition: Value) -> Sides:
    """Return the sides to look for: those that are new, as the condition is now."""
    is_watched = site.policy.verify == "sides" and not tx.export and len(site.seen_sides) < 2
    is_in_a_turn = bool(nesting_limits.ITERATIONS.of(tx.output))  # of an operator, without records
    if not is_watched or is_in_a_turn or record_builder.is_in_a_body(tx):
        return []
    predicate = deferred_exceptions.predicate_of(tx, site, condition)
    return [(True, predicate), (False, predicates.negated(tx, predicate))]


def add(tx: compat.Tracer, site: LiveSite, sides: Sides) -> None:
    """Have the first call that takes one of ``sides`` compared with eager execution."""
    nothing = compat.TupleVariable([])
    for truth, predicate in sides:
        if truth not in site.seen_sides:
            draft = Draft(site, constant(truth), predicate, nothing, Kind.CANARY)
            record_builder.append(tx, draft)
