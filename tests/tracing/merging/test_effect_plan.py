"""Which stores of two arms become which changes of the main trace, and how these are made."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bcmend.dynamo import compat
from bcmend.dynamo.values import constant
from bcmend.tracing.merging.effect_plan import plan_changes
from bcmend.tracing.merging.journaled_container import JournaledContainer
from bcmend.tracing.merging.location_phi import Journaled, OneSide, OneValue, apply
from bcmend.tracing.merging.optional_items import OptionalItem, OptionalList
from bcmend.tracing.output import record_builder
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.search.falsified import weaken
from bcmend.tracing.sites.locations import Location, LocationKind
from bcmend.tracing.sites.refusal import Refusal
from bcmend.tracing.speculation.arms import ArmTrace, ContainerChange, Effects
from tests.tracing.merging.joins import join_of
from tests.tracing.plain_trace import traced

FLAG, VECTOR, OTHER = torch.tensor(True), torch.ones(2), torch.zeros(2)


class Box:
    """An object with an attribute."""

    held: Any = None


def _arm(*changes: ContainerChange) -> ArmTrace:
    """Return an arm that does nothing but change containers."""
    return ArmTrace(constant(None), torch.fx.Graph(), {}, Effects(containers=changes), ())


def _list(*items: Any) -> Any:
    return compat.ListVariable(list(items), mutation_type=compat.ValueMutationNew())


def _to(variable: Any, *after: Any) -> ContainerChange:
    """Return the change of a list to other items."""
    return ContainerChange(variable, {"items": list(variable.items)}, {"items": list(after)})


def _keyed(**items: Any) -> Any:
    given: Any = {constant(key): value for key, value in items.items()}
    return compat.ConstDictVariable(given, mutation_type=compat.ValueMutationNew())


def test_items_that_both_sides_set_are_merged_place_by_place() -> None:
    def step(tx: Any, flag: Any, x: Any, y: Any) -> Any:
        one = constant(1)
        items = _list(x, one)
        join = join_of(tx, flag, y)
        arms = _arm(_to(items, y, one, x)), _arm(_to(items, x, one, x))
        first, added = changes = plan_changes(join, arms)
        assert isinstance(first, OneValue) and isinstance(added, OneValue)
        assert (first.location.key, first.sides) == (0, (y, x)) and added.location.key == 2
        assert [(each.then_value, each.else_value) for each in join.merger.pairs] == [(y, x)]
        apply(join, changes, [flag])
        assert items.items[0] is flag and items.items[2] is x
        assert items.items[1] is one and len(items.items) == 3
        return x

    traced(step, FLAG, VECTOR, OTHER)


def test_a_side_that_changes_nothing_has_the_items_from_before() -> None:
    def step(tx: Any, flag: Any, x: Any, y: Any) -> Any:
        items = _list(x)
        join = join_of(tx, flag, y)
        (change,) = plan_changes(join, (_arm(), _arm(_to(items, y))))
        assert isinstance(change, OneValue) and change.sides == (x, y)
        return x

    traced(step, FLAG, VECTOR, OTHER)


def test_a_list_that_grows_on_one_side_has_items_that_may_not_be_there() -> None:
    def step(tx: Any, flag: Any, x: Any) -> Any:
        items = _list(x)
        join = join_of(tx, flag)
        apply(join, plan_changes(join, (_arm(_to(items, x, x)), _arm())), [])
        assert isinstance(items, OptionalList) and items.is_sure
        assert [type(each) for each in items.all_items] == [type(x), OptionalItem]
        assert items.optional[0].predicate is join.predicate
        return items.length(tx)

    assert traced(step, FLAG, VECTOR).result == 1 + bool(FLAG)


def test_a_list_that_grows_unlike_has_the_items_of_both_sides() -> None:
    def step(tx: Any, flag: Any, x: Any, y: Any) -> Any:
        items, grown = _list(x), _list(x)
        join = join_of(tx, flag)
        arms = _arm(_to(items, x, x), _to(grown, x, x)), _arm(_to(items, x, y, y), _to(grown, x, y))
        apply(join, plan_changes(join, arms), [x])
        assert [each.value for each in items.optional] == [x, y, y]
        assert items.optional[0].predicate is join.predicate
        assert not isinstance(grown, OptionalList), "both sides append one item"
        return items.length(tx)

    assert traced(step, FLAG, VECTOR, OTHER).result == 2 + (not FLAG)


def test_a_list_of_which_items_are_read_is_journaled() -> None:
    def step(tx: Any, flag: Any, x: Any) -> Any:
        items = _list(x)
        join = join_of(tx, flag)
        weaken(Finding(Claim.ADDED_UP, join.site, 0))
        changes = plan_changes(join, (_arm(_to(items, x, x)), _arm()))
        assert [type(each) for each in changes] == [Journaled, OneSide]
        assert not join.merger.pairs
        weaken(Finding(Claim.READ_APART, join.site, 0))
        with pytest.raises(Refusal, match="is read later"):
            plan_changes(join, (_arm(_to(items, x, x)), _arm()))
        assert not isinstance(items, JournaledContainer), "planning changes nothing"
        return x

    traced(step, FLAG, VECTOR)


def test_a_dictionary_that_gets_a_key_on_one_side_is_journaled() -> None:
    def step(tx: Any, flag: Any, x: Any) -> Any:
        before, same, more = _keyed(a=x), _keyed(a=x, b=x), _keyed(a=x, b=x, c=x)
        for after, other, kind in ((more, same, Journaled), (same, same, OneValue)):
            arms = (
                _arm(ContainerChange(before, {"items": before.items}, {"items": side.items}))
                for side in (after, other)
            )
            changes = plan_changes(join_of(tx, flag), tuple(arms))  # type: ignore[arg-type]
            assert {type(each) for each in changes} - {OneSide} == {kind}
        return x

    traced(step, FLAG, VECTOR)


def test_a_set_that_both_sides_leave_alike() -> None:
    def step(tx: Any, flag: Any, x: Any) -> Any:
        before, after = (
            compat.SetVariable(list(map(constant, keys)), mutation_type=compat.ValueMutationNew())
            for keys in ((1,), (1, 2))
        )
        change = ContainerChange(before, {"items": before.items}, {"items": after.items})
        join = join_of(tx, flag)
        changes = plan_changes(join, (_arm(change), _arm(change)))
        assert [each.location for each in changes] == [Location(LocationKind.CONTENTS, before)]
        apply(join, changes, [])
        assert [key.vt.as_python_constant() for key in before.items] == [1, 2]
        assert before.items is not after.items
        return x

    traced(step, FLAG, VECTOR)


def test_what_dies_with_the_frame_needs_no_change() -> None:
    def step(tx: Any, flag: Any, x: Any) -> Any:
        items = _list(x)
        join = join_of(tx, flag, returns=True)
        assert plan_changes(join, (_arm(_to(items, x, x)), _arm())) == []
        return x

    traced(step, FLAG, VECTOR)


@pytest.mark.parametrize("name", ["held", "cell_contents"])
def test_a_tensor_from_before_is_stored_itself_when_the_graph_has_run(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    drafts: list[Any] = []
    monkeypatch.setattr(record_builder, "append", lambda tx, draft: drafts.append(draft))

    def step(tx: Any, flag: Any, x: Any, y: Any, box: Any) -> Any:
        join = join_of(tx, flag, y)
        location = Location(LocationKind.ATTRIBUTE, box, name, "any store")
        change = OneValue(location, lambda merged: merged[0], (x, y))
        monkeypatch.setattr(tx.output.side_effects, "store_attr", lambda *stored: None)
        apply(join, [change], [flag])
        (draft,) = drafts
        assert draft.action.fn.__name__ == "write_back_attribute"
        owner, key, merged, predicate, one, other = draft.inputs.items
        assert owner is box and key.as_python_constant() == name
        assert merged is flag and predicate is flag
        assert one is x, "the tensor from before"
        assert other is merged, "what an arm has made has no other object"
        return x

    traced(step, FLAG, VECTOR, OTHER, Box())
