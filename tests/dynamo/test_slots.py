"""Values that live on objects of Dynamo."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace

from bcmend.dynamo.slots import Slot


class _Value:
    pass


def test_the_first_value_is_made_when_it_is_asked_for() -> None:
    slot: Slot[list[int]] = Slot(list)
    holder = SimpleNamespace()
    assert slot.peek(holder) is None
    made = slot.of(holder)
    assert made == [] and slot.of(holder) is made and slot.peek(holder) is made


def test_each_holder_and_each_slot_has_a_value_of_its_own() -> None:
    one, other = Slot(list), Slot(list)
    first, second = SimpleNamespace(), SimpleNamespace()
    one.of(first).append(1)
    assert one.of(second) == [] and other.of(first) == []


def test_a_value_is_replaced_also_by_none() -> None:
    slot: Slot[int | None] = Slot(lambda: 3)
    holder = SimpleNamespace()
    slot.put(holder, None)
    assert slot.of(holder) is None
    slot.put(holder, 4)
    assert slot.of(holder) == 4


def test_a_value_goes_with_its_holder() -> None:
    slot = Slot(_Value)
    holder = SimpleNamespace()
    value = weakref.ref(slot.of(holder))
    assert value() is not None
    del holder
    gc.collect()
    assert value() is None
