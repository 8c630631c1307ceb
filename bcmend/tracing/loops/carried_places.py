"""Attributes, variables of outer scopes and items of containers that the turns of a loop store to.

What such a place holds goes into a turn and comes out of it like a local variable. A tensor from
before the call is not replaced: without a turn the place would have to hold that very one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from bcmend.dynamo import compat
from bcmend.dynamo.models import containers
from bcmend.dynamo.values import Value
from bcmend.tracing.merging import attribute_effects, location_phi
from bcmend.tracing.sites.locations import Location, LocationKind
from bcmend.tracing.sites.refusal import NotThisWay
from bcmend.tracing.speculation.arms import ContainerChange, Effects

_CONTAINERS: Final = (compat.ListVariable, compat.ConstDictVariable)


def places_in(effects: Effects, inputs: Sequence[Value]) -> tuple[Location, ...]:
    """Return the places that a turn stores to. Raises ``Refusal`` for other changes.

    ``inputs`` are the live-ins of the jump, among them the range that the loop goes over.
    """
    if effects.other:
        raise NotThisWay("a turn writes output, makes a check or changes an object")
    known = [each.realize() for each in inputs]
    if any(all(taken is not each for each in known) for taken in effects.consumed):
        raise NotThisWay("a turn takes items from an iterator")
    items = [place for each in effects.containers for place in _items_in(each)]
    return (*effects.attributes, *items)


def _items_in(change: ContainerChange) -> Iterator[Location]:
    is_known = type(change.variable) in _CONTAINERS and not change.is_open
    before, after = (containers.by_key(each["items"]) for each in (change.before, change.after))
    if not is_known or not containers.have_same_keys(before, after):
        raise NotThisWay("a turn changes a list, a dictionary or a set")
    for key, value in after.items():
        if value is not before[key]:
            yield Location(LocationKind.ITEM, change.variable, key)


def read(tx: compat.Tracer, place: Location) -> Value:
    """Return what a place holds. Raises ``Refusal`` where the loop cannot store to it."""
    if place.kind is LocationKind.ITEM:
        held: Value = vars(place.owner)["items"][place.key]
        return held
    value = attribute_effects.stored_attribute(tx, place)
    if value is None:
        raise NotThisWay(f"a turn stores to {place.key}, which may not be there before")
    return value


def write(tx: compat.Tracer, places: Sequence[Location], values: Sequence[Value]) -> None:
    """Store a value in each place."""
    for place, value in zip(places, values, strict=True):
        location_phi.write(tx, place, value)


def require_new(before: Value) -> None:
    """Raise ``Refusal`` for a tensor from before the call, which a turn replaces in its place."""
    if isinstance(before, compat.TensorVariable) and before.source is not None:
        raise NotThisWay("a turn puts another tensor in the place of one from before the call")
