"""Delivery: in order, under predicates, once, and no further than the first failed guard."""

from __future__ import annotations

import threading
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bcmend.delivery.codec import CHOICE, TEXT, encoded
from bcmend.delivery.records import (
    MISSING,
    Buffer,
    add_member,
    alter,
    deliver,
    present,
    refill,
    show_as_of,
    store,
    store_choice,
    store_item,
    write_back_attribute,
    write_back_item,
)
from bcmend.tracing.sites.outlet import OUTLET


def _writer(log: list[Any]) -> Any:
    return lambda *values: log.append(values)


def _raise(message: str) -> None:
    raise ValueError(message)


def test_records_are_delivered_in_order_and_the_buffer_is_left_empty() -> None:
    log: list[Any] = []
    buffer: Buffer = [("s", None, False, _writer(log), (number,)) for number in range(3)]
    deliver(buffer)
    assert log == [(0,), (1,), (2,)]
    assert buffer == []


def test_a_false_predicate_keeps_a_record_back() -> None:
    log: list[Any] = []
    write = _writer(log)
    deliver(
        [
            ("s", torch.tensor(False), False, write, ("not taken",)),
            ("s", torch.tensor(True), False, write, ("taken",)),
        ]
    )
    assert log == [("taken",)]


def test_nothing_after_a_failed_guard_is_delivered() -> None:
    log: list[Any] = []
    write = _writer(log)
    buffer: Buffer = [
        ("s", None, False, write, ("before",)),
        ("g", torch.tensor(False), True, _raise, ("holds",)),
        ("g", torch.tensor(True), True, _raise, ("failed",)),
        ("s", None, False, write, ("after",)),
    ]
    with pytest.raises(ValueError, match="failed"):
        deliver(buffer)
    assert log == [("before",)]
    assert buffer == []


def test_a_second_interrupt_ends_a_delivery() -> None:
    log: list[Any] = []

    def interrupt() -> None:
        log.append("interrupted")
        raise KeyboardInterrupt(len(log))

    actions = [
        lambda: _raise("failed"),
        lambda: interrupt(),
        lambda: log.append("more"),
        lambda: interrupt(),
        lambda: log.append("end"),
    ]
    with pytest.raises(KeyboardInterrupt) as caught:
        deliver([("s", None, False, action, ()) for action in actions])
    assert log == ["interrupted", "more", "interrupted"]
    assert caught.value.args == (1,)


def test_an_argument_that_cannot_be_made_ends_a_delivery() -> None:
    log: list[Any] = []
    buffer: Buffer = [
        ("s", None, False, lambda zero: log.append(1 / zero), (0,)),
        ("s", None, False, log.append, ("after",)),
    ]
    with pytest.raises(ZeroDivisionError):
        deliver(buffer)
    assert log == []


def test_a_guard_that_does_not_raise_is_an_error_and_no_result() -> None:
    with pytest.raises(AssertionError, match=r"my\.site"):
        deliver([("my.site", torch.tensor(True), True, lambda: None, ())])


def test_assigning_to_the_outlet_delivers() -> None:
    log: list[Any] = []
    OUTLET.records = [("s", None, False, _writer(log), (1,))]
    assert log == [(1,)]


@pytest.mark.parametrize("taken", [True, False])
def test_writing_back_stores_the_very_object_of_the_taken_side(taken: bool) -> None:
    one, other, merged = torch.zeros(1), torch.ones(1), torch.full((1,), 2.0)
    module = torch.nn.Module()
    module.register_buffer("state", merged)
    items = {"state": merged}
    write_back_attribute(module, "state", merged, torch.tensor(taken), one, other)
    write_back_item(items, "state", merged, torch.tensor(taken), one, other)
    assert module.state is (one if taken else other)
    assert items["state"] is (one if taken else other)


def test_writing_back_keeps_what_was_stored_since() -> None:
    newer, merged = torch.zeros(1), torch.ones(1)
    items = {"state": newer}
    write_back_item(items, "state", merged, torch.tensor(True), merged, merged)
    assert items["state"] is newer


@pytest.mark.parametrize(
    ("owner", "removed", "added", "expected"),
    [
        ([1, 2, 3], 1, (7,), [1, 7]),
        (deque([1, 2, 3], maxlen=3), 2, (7, 8), deque([2, 7, 8], maxlen=3)),
        ({"a": 1, "b": 2}, ("a", "z"), (("b", 3), ("c", 4)), {"b": 3, "c": 4}),
        ({"a", "b"}, ("a", "z"), ("c",), {"b", "c"}),
    ],
)
def test_a_container_gets_the_contents_of_the_side_taken(
    owner: Any, removed: Any, added: Any, expected: Any
) -> None:
    refill(owner, removed, added)
    assert owner == expected


def test_a_container_of_a_class_of_the_users_is_only_changed() -> None:
    class Loud(list[int]):
        def append(self, item: int) -> None:
            raise AssertionError("the graph has had this effect")

    owner = Loud([1])
    alter(owner, "append", encoded(CHOICE, torch.tensor(False), 2, 3))
    refill(owner, 2, (4,))
    assert owner == [1, 3, 4]


def _owner_of(**attributes: Any) -> Any:
    return SimpleNamespace(**attributes)


def test_a_choice_is_stored_where_nothing_else_was() -> None:
    owner, choice = _owner_of(flag=0, other=0), encoded(CHOICE, torch.tensor(True), 1, 2)
    store_choice(owner, "flag", True, choice, None)
    store_choice(owner, "other", False, choice, None)
    assert vars(owner) == {"flag": 1, "other": 0}


def test_a_choice_of_no_attribute_deletes_it() -> None:
    owner = _owner_of(flag=0)
    store_choice(owner, "flag", True, encoded(CHOICE, torch.tensor(False), 1, MISSING), None)
    assert not vars(owner)


def test_choices_behind_a_failed_check_are_taken_back() -> None:
    def fail() -> None:
        raise ValueError

    owner, choice = _owner_of(early=0, late=0, new=0), encoded(CHOICE, torch.tensor(True), 1, 2)
    stores = [
        ("s", None, False, store_choice, (owner, name, True, choice, before))
        for name, before in (("early", "no"), ("late", "before"), ("new", MISSING))
    ]
    with pytest.raises(ValueError):
        deliver([stores[0], ("s", None, True, fail, ()), *stores[1:]])
    assert vars(owner) == {"early": 1, "late": "before"}


def test_a_new_key_stands_right_behind_the_keys_before_it() -> None:
    owner = {"a": 1, "c": 3, "d": 4}
    store_item(owner, "b", 2, ("a",))
    assert list(owner.items()) == [("a", 1), ("b", 2), ("c", 3), ("d", 4)]


def test_a_known_key_keeps_its_place() -> None:
    owner = {"a": 1, "b": 2, "c": 3}
    store_item(owner, "b", 5, ())
    assert list(owner.items()) == [("a", 1), ("b", 5), ("c", 3)]


def test_a_member_is_added_to_a_set() -> None:
    owner = {1}
    add_member(owner, 2, None)
    assert owner == {1, 2}


def test_an_attribute_that_does_not_exist_is_missing() -> None:
    owner = SimpleNamespace(found=None)
    assert present(owner, "found") is None
    assert present(owner, "other") is MISSING


def test_storing_has_no_other_effect() -> None:
    log: list[str] = []

    class Noting:
        def __setattr__(self, name: str, value: object) -> None:
            log.append(name)
            object.__setattr__(self, name, value)

    owner = Noting()
    store(owner, "value", 3)
    assert owner.value == 3 and log == []  # type: ignore[attr-defined]
    store(owner, "value", MISSING)
    assert not hasattr(owner, "value")


def test_storing_in_a_module_registers_a_parameter() -> None:
    module, parameter = torch.nn.Module(), torch.nn.Parameter(torch.ones(1))
    store(module, "weight", parameter)
    assert dict(module.named_parameters()) == {"weight": parameter}


def test_output_shows_objects_as_they_were() -> None:
    owner, log = SimpleNamespace(changed=2, added=3, gone=None), []
    del owner.gone
    stored = (
        (owner, "changed", True, 1),
        (owner, "added", False, None),
        (owner, "gone", True, 0),
    )
    show_as_of(lambda given: log.append(dict(vars(given))), stored, owner)
    assert log == [{"changed": 1, "gone": 0}]
    assert vars(owner) == {"changed": 2, "added": 3}


def test_objects_are_as_before_when_output_fails() -> None:
    owner = SimpleNamespace(changed=2)
    with pytest.raises(ValueError, match="failed"):
        show_as_of(lambda given: _raise("failed"), ((owner, "changed", True, 1),), owner)
    assert owner.changed == 2


def test_texts_are_formatted_while_objects_are_as_they_were() -> None:
    owner, log = SimpleNamespace(value=2), []
    text = encoded(TEXT, "{0.value} {name}", (owner,), (("name", "x"),))
    show_as_of(log.append, ((owner, "value", True, 1),), text)
    assert log == ["1 x"]


@pytest.mark.parametrize("kind", [dict, set])
def test_keys_of_the_side_that_is_not_taken_are_removed(kind: Any) -> None:
    owner = kind.fromkeys("ab") if kind is dict else set("ab")
    refill(owner, ("b", "never there"), ({"c": None} if kind is dict else ("c",)))
    assert set(owner) == {"a", "c"}


def test_a_buffer_is_empty_also_where_nothing_is_delivered() -> None:
    buffer: Buffer = [("s", torch.tensor(False), False, _raise, ("not taken",))]
    deliver(buffer)
    assert buffer == []


def test_a_store_to_a_class_or_to_data_of_a_thread_uses_the_method_of_its_type() -> None:
    class Flags:
        warned = False

    held = threading.local()
    store(Flags, "warned", True)
    store(held, "seen", 1)
    assert (Flags.warned, held.seen) == (True, 1)
    store(Flags, "warned", MISSING)
    assert not hasattr(Flags, "warned")


def test_what_only_the_class_has_is_not_present() -> None:
    class Base:
        count = 0
        __slots__ = ("__dict__", "slot")

    class Derived(Base):
        pass

    owner = Derived()
    owner.slot = 1
    assert present(owner, "count") is MISSING
    assert present(Derived, "count") is MISSING
    assert (present(Base, "count"), present(owner, "slot")) == (0, 1)
    owner.count = 2  # type: ignore[misc]
    assert present(owner, "count") == 2
    assert present(owner, "nothing") is MISSING
