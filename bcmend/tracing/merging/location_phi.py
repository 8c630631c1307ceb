"""What the two sides of a branch leave at one location, in several forms.

Each form answers the same three questions, so that nobody asks which of them it is. A form is a
plan; what a reader gets of it may be a phi of the main trace (``sites.phi``).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from bcmend.delivery import records
from bcmend.dynamo import compat, shape_env
from bcmend.dynamo.models import containers
from bcmend.dynamo.values import (
    TensorValue,
    Value,
    constant,
    example_of,
    is_unbacked,
    items_in,
    kind_of_number,
)
from bcmend.tracing.merging.journaled_container import Journal, start
from bcmend.tracing.merging.lazy_phi import GatedPhi, owner_in_a_record
from bcmend.tracing.merging.merge import Join
from bcmend.tracing.numbers import float_tensors, predicates, scalars
from bcmend.tracing.output import record_builder
from bcmend.tracing.output.record_builder import Draft
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.sites import body_states, nesting_limits
from bcmend.tracing.sites.locations import Location, LocationKind
from bcmend.tracing.sites.phi import Build, Merged
from bcmend.tracing.sites.refusal import Refusal


def write(tx: compat.Tracer, where: Location, value: Any) -> None:
    """Have a location of the trace hold a value."""
    effects = tx.output.side_effects
    if where.kind is LocationKind.ATTRIBUTE:
        effects.store_attr(where.owner, where.key, value, where.store)
        return
    effects.mutation(where.owner)
    items = vars(where.owner)["items"]
    if where.kind is LocationKind.CONTENTS:
        containers.replace_items(where.owner, value)
    elif isinstance(items, list) and where.key == len(items):
        items.append(value)
    else:
        items[where.key] = value


@dataclass(frozen=True, slots=True)
class LocationPhi:
    """What the sides of a branch leave at a location."""

    location: Location

    def read(self, join: Join, merged: Merged) -> Any:
        """Return the value for a later reader in the trace."""
        raise NotImplementedError

    def materialise(self, join: Join, value: Any) -> None:
        """Write the value to the location now."""
        write(join.tx, self.location, value)

    def defer(self, join: Join, value: Any) -> bool:
        """Have records write what the trace cannot, when the graph has run.

        Return whether they may put an older object in the place of ``value``.
        """
        return False


def apply(join: Join, phis: Sequence[LocationPhi], merged: Merged) -> list[tuple[Location, Value]]:
    """Make the main trace, and what is delivered after it, as the sides leave them.

    Return the values in whose places records may put an older object.
    """
    replaced = []
    for phi in phis:
        value = phi.read(join, merged)
        phi.materialise(join, value)
        if phi.defer(join, value):
            replaced.append((phi.location, value))
    return replaced


@dataclass(frozen=True, slots=True)
class OneValue(LocationPhi):
    """One value that serves for both sides. A tensor from before is written back after the graph.

    The merged one only has its values: who compares objects, or changes one later, can tell.
    """

    build: Callable[[Merged], Any]
    sides: tuple[Any, Any]

    def read(self, join: Join, merged: Merged) -> Any:
        return self.build(merged)

    def defer(self, join: Join, value: Any) -> bool:
        owner, key = self.location.owner, self.location.key
        if value in self.sides or owner.source is None:
            return False
        sides = [join.merger.object_of(side, value) for side in self.sides]
        if all(side is value for side in sides) or not record_builder.is_open(join.tx):
            return False
        is_attribute = self.location.kind is LocationKind.ATTRIBUTE
        action: Any = records.write_back_attribute if is_attribute else records.write_back_item
        is_named = is_attribute or isinstance(key, int)
        name = constant(key) if is_named else containers.key_model(key)
        inputs = [owner_in_a_record(owner), name, value, join.predicate, *sides]
        _append_store(join, action, inputs)
        return True


@dataclass(frozen=True, slots=True)
class OneNumber(LocationPhi):
    """A number of the graph, selected from those of both sides, which are of one kind.

    ``finding`` is falsified if something has to know it; ``between`` is where an integer is.
    """

    sides: tuple[Build, Build]
    kind: type
    between: Any
    finding: Finding

    def read(self, join: Join, merged: Merged) -> Value:
        tx = join.tx
        one, other = (
            float_tensors.of_number(tx, side(merged), self.kind).as_proxy() for side in self.sides
        )
        number = scalars.take(tx, predicates.chosen(tx, join.predicate, one, other))
        assert number is not None
        if self.between is not None:
            shape_env.limit(number, self.between)
        body_states.state_of(tx.output.root_tx.f_code).noted_open.append(self.finding)
        return number


def one_number(join: Join, location: Location, sides: tuple[Value, Value]) -> LocationPhi | None:
    """Plan one number for those of both sides; ``None`` where they are to stay apart.

    One is a number of the graph already, or the operator of a loop is to carry what is stored, or
    it is read behind the branch.
    """
    kinds = set(map(kind_of_number, sides))
    is_computed = any(map(is_unbacked, sides)) or nesting_limits.ITERATIONS.of(join.tx.output)
    is_read = not join.site.holds(Claim.READ_APART, join.form)
    if None in kinds or len(kinds) > 1 or not (is_computed or is_read):
        return None
    finding = Finding(Claim.COMPUTED_WITH, join.site, join.form)
    kind, between = kinds.pop(), None
    if kind is int:
        between = reduce(operator.or_, map(shape_env.limits_of, sides))
    if finding.known is not None or (between is not None and shape_env.may_overflow(between)):
        return None
    one, other = (
        join.merger.adopt(side, then_side=taken)
        for taken, side in zip((True, False), sides, strict=True)
    )
    return OneNumber(location, (one, other), kind, between, finding)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class BothSides(LocationPhi):
    """Both sides, which ``phi`` holds until the one taken is stored when the graph has run."""

    sides: tuple[Build, ...]
    phi: Callable[..., GatedPhi]

    def read(self, join: Join, merged: Merged) -> GatedPhi:
        built = (side(merged) for side in self.sides)
        sides = [side.recorded() if isinstance(side, GatedPhi) else side for side in built]
        return self.phi(join.site, join.form, join.tx.output, sides, predicate=join.predicate)

    def defer(self, join: Join, value: GatedPhi) -> bool:
        inputs = value.for_record
        if inputs:
            _append_store(join, records.store_choice, inputs)
        return False


def _append_store(join: Join, action: Callable[..., None], inputs: Sequence[Value]) -> None:
    draft = record_builder.store_by(join.tx, join.site, action, inputs)
    record_builder.append(join.tx, draft)


@dataclass(frozen=True, slots=True)
class OneSide(LocationPhi):
    """What one side alone does, as a record: the first side if it is ``taken``."""

    taken: bool
    record: Callable[[Merged], Draft]

    def read(self, join: Join, merged: Merged) -> Draft:
        return self.record(merged)

    def materialise(self, join: Join, value: Draft) -> None:
        """Write nothing: the trace has no condition."""

    def defer(self, join: Join, value: Draft) -> bool:
        append_under(join.tx, join.predicate, value, taken=self.taken)
        return False


def append_under(tx: compat.Tracer, predicate: TensorValue, draft: Draft, *, taken: bool) -> None:
    """Append a record of an arm to the enclosing list, under the arm's side of the condition."""
    condition = predicate if taken else predicates.negated(tx, predicate)
    inner: Any = draft.predicate
    if inner is not None:
        condition = predicates.both(tx, condition, inner)
    record_builder.append(tx, replace(draft, predicate=condition))


@dataclass(frozen=True, slots=True)
class Journaled(LocationPhi):
    """A container of which every later change is a record."""

    def read(self, join: Join, merged: Merged) -> Any:
        return self.location.owner

    def materialise(self, join: Join, value: Any) -> None:
        join.tx.output.side_effects.check_allowed_side_effect(value)
        start(value, Journal(join.site, join.form, join.tx.output))


def may_outlive_its_graph(sides: Sequence[Value]) -> bool:
    """Return whether sides hold a tensor from before the call, and gradients flow into one.

    A merged value that is stored has a history in which the tensor from before is. The backward of
    a later call, which has the value for its own tensor from before, would go through that history
    once more.
    """
    tensors = [each for side in sides for each in _tensors_in(side)]
    return any(each.source is not None for each in tensors) and any(
        example_of(each).requires_grad for each in tensors
    )


def require_no_earlier_history(sides: Sequence[Value], name: str) -> None:
    """Raise ``Refusal`` if gradients flow into a tensor of sides that is from before the call."""
    if has_earlier_history(sides):
        raise Refusal("arms-differ", f"{name} has the history of an earlier call on one side")


def require_no_gradients(results: Sequence[Value], name: str) -> None:
    """Raise ``Refusal`` if gradients flow through what is computed with an earlier history."""
    if any(example_of(each).requires_grad for side in results for each in _tensors_in(side)):
        raise Refusal("arms-differ", f"{name} has the history of an earlier call on one side")


def has_earlier_history(sides: Sequence[Value]) -> bool:
    """Return whether gradients flow into a tensor of sides that is from before the call."""
    tensors = [each for side in sides for each in _tensors_in(side)]
    return any(each.source is not None and example_of(each).requires_grad for each in tensors)


def _tensors_in(value: Value) -> list[TensorValue]:
    """Return the tensors that a value is or holds as items, be it in containers that hold it."""
    found: list[TensorValue] = []
    left, seen = [value.realize()], set[int]()
    while left:
        each = left.pop()
        if isinstance(each, compat.TensorVariable):
            found.append(each)
        if id(each) not in seen:
            seen.add(id(each))
            left.extend(item.realize() for item in items_in(each) or ())
    return found
