"""Models of containers are read and made in one place."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from types import SimpleNamespace
from typing import Any

import pytest

from bcmend.dynamo import compat
from bcmend.dynamo.models import containers
from bcmend.dynamo.models.containers import ARE_ONE
from bcmend.dynamo.values import constant

ONE, TWO = constant(1), constant(2)
Pair = namedtuple("Pair", "one other")


@pytest.fixture(autouse=True)
def _tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat.translator_tls, "current_tx", SimpleNamespace(), raising=False)


def _dictionary(kind: type = dict) -> Any:
    items = {constant("a"): ONE, constant("b"): TWO}
    if not containers.DICTIONARIES_BY_ITEMS:
        return compat.ConstDictVariable(items, kind)
    models = {dict: compat.ConstDictVariable, OrderedDict: compat.OrderedDictVariable}
    return models[kind](items)


@pytest.mark.skipif(ARE_ONE, reason="an object of a subclass is the model of its contents")
def test_contents_of_an_object_of_a_subclass() -> None:
    owner: Any = SimpleNamespace()
    assert containers.contents_of(owner) is None
    containers.set_contents(owner, ONE)
    assert containers.contents_of(owner) is ONE
    assert containers.contents_of(compat.ListVariable([ONE])) is None
    assert containers.kind_of(compat.ListVariable) is compat.ListVariable


@pytest.mark.skipif(not containers.DICTIONARIES_BY_ITEMS, reason="it has a model of its contents")
def test_an_ordered_dictionary_is_the_model_of_its_contents() -> None:
    made = _dictionary(OrderedDict)
    assert containers.contents_of(made) is made
    assert containers.kind_of(type(made)) is compat.ConstDictVariable


@pytest.mark.skipif(not ARE_ONE, reason="an object of a subclass has a model of its contents")
def test_an_object_of_a_subclass_is_the_model_of_its_contents() -> None:
    heir = type("Heir", (dict,), {})()
    owner = compat.UserDefinedDictVariable(heir, {constant("a"): ONE})
    assert containers.contents_of(owner) is owner
    assert containers.kind_of(type(owner)) is compat.ConstDictVariable
    for plain in (compat.ListVariable([ONE]), _dictionary()):
        assert containers.contents_of(plain) is None
        assert containers.kind_of(type(plain)) is type(plain)


def test_a_container_gets_other_items_in_the_same_places() -> None:
    for made in (_dictionary(), compat.ListVariable([ONE, TWO])):
        containers.fill(made, [TWO, TWO])
        assert containers.items_held(made) == [TWO, TWO]
    assert [containers.key_model(each).value for each in _dictionary().items] == ["a", "b"]


def test_keys_are_models() -> None:
    keys = list(map(containers.key_model, _dictionary().items))
    assert [each.as_python_constant() for each in keys] == ["a", "b"]


def test_a_dictionary_of_a_class_of_its_own_is_not_plain() -> None:
    assert containers.is_plain_dictionary(_dictionary())
    assert not containers.is_plain_dictionary(_dictionary(OrderedDict))
    assert not containers.is_plain_dictionary(compat.ListVariable([]))


def test_dictionaries_are_asked_for_keys() -> None:
    tx: Any = SimpleNamespace()
    assert containers.item_of_dictionary(_dictionary(), tx, constant("b")) is TWO
    assert containers.has_key(_dictionary(), tx, constant("b")).as_python_constant() is True
    assert containers.has_key(_dictionary(), tx, constant("c")).as_python_constant() is False
    assert containers.length_of(tx, compat.ListVariable([ONE, TWO])).as_python_constant() == 2


def test_what_is_made_may_be_changed() -> None:
    made = (
        containers.new_list([ONE]),
        containers.new_dictionary({}),
        containers.new_dictionary_like(_dictionary(), {}),
        containers.new_deque_like(compat.DequeVariable([], constant(3)), [ONE]),
    )
    assert all(isinstance(each.mutation_type, compat.ValueMutationNew) for each in made)
    assert containers.part_of_dictionary(_dictionary(), {}).mutation_type is None


def test_what_is_made_is_like_its_model() -> None:
    ordered = _dictionary(OrderedDict)
    assert containers.new_dictionary_like(ordered, {}).python_type() is OrderedDict
    deque = containers.new_deque_like(compat.DequeVariable([], constant(3)), [ONE])
    assert deque.items == [ONE] and deque.maxlen.as_python_constant() == 3  # type: ignore[union-attr]
    items = [ONE, TWO]
    given: Any = {"items": items} if ARE_ONE else {"tuple_vt": compat.TupleVariable(items)}
    named = compat.NamedTupleVariable(Pair(1, 2), **given)
    changed: Any = containers.named_tuple_like(named, [TWO, TWO])
    assert type(changed) is type(named) and list(changed.items) == [TWO, TWO]


@pytest.mark.parametrize(
    ("places", "is_written_anew"), [([0], True), ([0, 1], False), ([1, 0], True), ([1], True)]
)
def test_a_container_of_which_keys_have_moved_is_written_anew(
    places: list[int], is_written_anew: bool
) -> None:
    known = _dictionary()
    known.should_reconstruct_all = False
    entries = list(known.items.items())
    items = dict(entries[each] for each in places)
    containers.replace_items(known, items)
    assert known.items == items and known.items is not items
    containers.write_all_back_if_keys_moved(known)
    assert known.should_reconstruct_all is is_written_anew


def test_ranges_that_have_come_to_their_end() -> None:
    left = containers.exhausted_range(0, 4, 2)
    assert containers.items_left(left) == 0
    assert containers.items_left(containers.ExhaustedRange()) == 0
    assert containers.items_left(compat.RangeIteratorVariable(0, 4, 2, 2)) == 2
    assert containers.whole_slice(constant(None)).as_python_constant() == slice(None)
