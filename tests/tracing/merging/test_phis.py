"""Each function of the protocol of phis, by each of its implementations, and what asks a phi."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from bcmend.dynamo import compat
from bcmend.dynamo.models import methods
from bcmend.dynamo.values import constant
from bcmend.names import UNBOUND
from bcmend.tracing.merging.lazy_phi import (
    GatedPhi,
    LazyPhi,
    MissingAttribute,
    StoredPhi,
    UnreadPhi,
    may_be_unbound,
)
from bcmend.tracing.merging.live_outs import has_choice, merge_live_outs
from bcmend.tracing.merging.merge import Pair
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.search.falsified import Falsified, weaken
from bcmend.tracing.sites.locations import Location, LocationKind
from bcmend.tracing.sites.phi import Phi
from bcmend.tracing.sites.refusal import Refusal
from tests.tracing.merging.joins import join_of, site
from tests.tracing.plain_trace import traced

FLAG, VECTOR = torch.tensor(True), torch.ones(2)


class Box:
    """An object with attributes."""

    held: Any = None


def _unread(tx: Any, *sides: Any) -> UnreadPhi:
    return UnreadPhi(site(), 0, tx.output, sides)


def _gated(tx: Any, predicate: Any, one: Any, other: Any) -> GatedPhi:
    return GatedPhi(site(), 0, tx.output, (one, other), predicate=predicate)


def test_live_outs_without_a_common_form_become_phis() -> None:
    def step(tx: Any, flag: Any, x: Any, y: Any) -> Any:
        sides = compat.TupleVariable([x, constant(1)]), compat.TupleVariable([y, x])
        join = join_of(tx, flag, x, y)
        result: Any = merge_live_outs(join, sides)([y, x, x])
        merged, phi = result.items
        assert merged is y and type(phi) is UnreadPhi and not phi.unbound
        assert [type(side) for side in phi.sides] == [compat.ConstantVariable, type(x)]
        assert join.merger.pairs == [Pair(x, y), Pair(None, x)]
        assert not has_choice(result)
        weaken(Finding(Claim.DROPPED, join.site, 0))
        result = merge_live_outs(join, sides)([y, x, x])
        phi = result.items[1]
        assert type(phi) is GatedPhi and phi.predicate is flag and phi.sides[1] is x
        assert has_choice(result)
        weaken(Finding(Claim.READ_APART, join.site, 0))
        with pytest.raises(Refusal, match="int on one side"):
            merge_live_outs(join, sides)
        return x

    traced(step, FLAG, VECTOR, torch.zeros(2))


def test_a_local_that_one_arm_leaves_unbound_is_never_gated() -> None:
    def step(tx: Any, flag: Any, x: Any) -> Any:
        unbound = compat.ConstantVariable(UNBOUND)
        join = join_of(tx, flag)
        weaken(Finding(Claim.DROPPED, join.site, 0))
        sides = compat.TupleVariable([unbound]), compat.TupleVariable([x])
        (phi,) = merge_live_outs(join, sides)([]).items  # type: ignore[attr-defined]
        assert type(phi) is UnreadPhi and may_be_unbound(phi) and may_be_unbound(unbound)
        assert not may_be_unbound(x)
        with pytest.raises(Falsified):
            phi.store_sides()
        assert join.site.all_found(Claim.READ_APART) == [0], (
            "both sides cannot be had, so all have to be merged"
        )
        return x

    traced(step, FLAG, VECTOR)


@pytest.mark.parametrize(
    "question",
    [
        lambda tx, phi: phi.call_method(tx, "append", [], {}),
        lambda tx, phi: getattr(phi, methods.GETATTR)(tx, "name"),
        lambda tx, phi: phi.python_type(),
        lambda tx, phi: phi.as_proxy(),
        lambda tx, phi: phi.is_python_constant(),
        lambda tx, phi: phi.is_tensor(),
        lambda tx, phi: phi.as_python_constant(),
    ],
)
def test_a_question_has_the_frame_traced_again(question: Callable[[Any, Any], Any]) -> None:
    def step(tx: Any, x: Any) -> Any:
        phi = _unread(tx, x, constant(1))
        assert phi.unwrap() is phi and phi.realize() is phi, "it may be moved"
        assert phi.clone().sides == phi.sides
        assert phi.site.holds(Claim.READ_APART, 0)
        with pytest.raises(Falsified):
            question(tx, phi)
        assert phi.site.all_found(Claim.READ_APART) == [0]
        return x

    traced(step, VECTOR)


def test_while_dynamo_writes_code_a_phi_is_no_constant_and_no_tensor() -> None:
    def step(tx: Any, x: Any) -> Any:
        phi = _unread(tx, x, constant(1))
        phi.output = type("Output", (), {"should_exit": True})()
        assert not phi.is_tensor() and not phi.is_python_constant()
        with pytest.raises(compat.AsPythonConstantNotImplementedError):
            phi.as_python_constant()
        return x

    traced(step, VECTOR)


def test_a_phi_that_does_not_say_how_is_neither_adopted_nor_recorded() -> None:
    with pytest.raises(NotImplementedError):
        Phi().adopt_into(None, None)
    with pytest.raises(NotImplementedError):
        Phi().as_recorded(site(), lambda side: side)


def test_adopting_phis() -> None:
    def step(tx: Any, flag: Any, x: Any) -> Any:
        merger = join_of(tx, flag, x).merger
        unread, gated = _unread(tx, x, constant(1)), _gated(tx, flag, x, constant(1))
        assert unread.adopt_into(merger, True)([]) is unread and not merger.pairs
        built = gated.adopt_into(merger, False)([flag])
        assert type(built) is GatedPhi and built is not gated
        assert built.predicate is flag and built.sides[0] is flag, "the merged x"
        assert merger.pairs == [Pair(None, x)]
        recorded = gated.recorded()
        assert type(recorded.adopt_into(merger, False)([flag])) is type(recorded)
        return x

    traced(step, FLAG, VECTOR)


def test_recording_phis() -> None:
    def step(tx: Any, flag: Any, x: Any) -> Any:
        unread, reader = _unread(tx, x, constant(1)), site()
        with pytest.raises(Falsified):
            unread.as_recorded(reader, lambda side: side)
        assert unread.site.all_found(Claim.DROPPED) == [0] and unread.site.holds(
            Claim.READ_APART, 0
        )
        inner = _gated(tx, flag, constant(2), x)
        copies: list[Any] = []
        recorded: Any = _gated(tx, flag, x, inner).as_recorded(
            reader, lambda side: copies.append(side) or flag
        )
        assert recorded.predicate is flag and recorded.sides[0] is flag and copies[0] is x
        assert recorded.sides[1].sides == (flag, flag), "sides of sides are copied as well"
        plain = LazyPhi(site(), 0, tx.output)
        with pytest.raises(Falsified):
            plain.as_recorded(reader, lambda side: side)
        assert plain.site.all_found(Claim.READ_APART) == [0] and plain.site.holds(Claim.DROPPED, 0)
        return x

    traced(step, FLAG, VECTOR)


def _stored(tx: Any, predicate: Any, box: Any, *sides: Any) -> StoredPhi:
    phi, location = (site(), 0, tx.output, sides), Location(LocationKind.ATTRIBUTE, box, "held")
    return StoredPhi(*phi, predicate=predicate, location=location, is_typed=False)


def test_a_stored_phi_knows_whether_something_was_stored_over_it() -> None:
    def step(tx: Any, flag: Any, x: Any, box: Any) -> Any:
        effects = tx.output.side_effects
        phi = _stored(tx, flag, box, x, constant(1))
        assert phi.before.owner is box and phi.before.name == "held"
        assert phi.in_place() is None
        effects.store_attr(box, "held", phi)
        assert phi.in_place() is phi
        later = _stored(tx, flag, box, constant(2), x)
        assert isinstance(later.before, GatedPhi) and later.before.sides == phi.sides
        effects.store_attr(box, "held", later)
        assert phi.in_place() is later
        owner, name, *_ = phi.for_record
        assert owner is box and name.as_python_constant() == "held"
        effects.store_attr_mutations.clear()
        return x

    traced(step, FLAG, VECTOR, Box())


def test_looking_for_an_attribute_that_one_side_lacks_has_the_frame_traced_again() -> None:
    def step(tx: Any, flag: Any, x: Any, box: Any) -> Any:
        there = _stored(tx, flag, box, x, constant(1))
        there.require_present()
        missing = _stored(tx, flag, box, x, MissingAttribute())
        nested = _stored(tx, flag, box, x, missing)
        assert missing.may_be_missing and nested.may_be_missing and not there.may_be_missing
        with pytest.raises(Falsified):
            nested.require_present()
        assert nested.site.all_found(Claim.READ_APART) == [0]
        return x

    traced(step, FLAG, VECTOR, Box())
