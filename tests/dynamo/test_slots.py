"""Values that live on objects of Dynamo."""

from __future__ import annotations

import ast
import copy
import gc
import pickle
import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import bcmend
from bcmend.dynamo import slots
from bcmend.dynamo.slots import Slot


class _Value:
    pass


def test_the_first_value_is_made_when_it_is_asked_for() -> None:
    slot: Slot[list[int]] = Slot(list, rolls_back=False)
    holder = SimpleNamespace()
    assert slot.peek(holder) is None
    made = slot.of(holder)
    assert made == [] and slot.of(holder) is made and slot.peek(holder) is made


def test_each_holder_and_each_slot_has_a_value_of_its_own() -> None:
    one, other = Slot(list, rolls_back=False), Slot(list, rolls_back=False)
    first, second = SimpleNamespace(), SimpleNamespace()
    one.of(first).append(1)
    assert one.of(second) == [] and other.of(first) == []


def test_a_value_is_replaced_also_by_none() -> None:
    slot: Slot[int | None] = Slot(lambda: 3, rolls_back=False)
    holder = SimpleNamespace()
    slot.put(holder, None)
    assert slot.of(holder) is None
    slot.put(holder, 4)
    assert slot.of(holder) == 4


def test_a_value_goes_with_its_holder() -> None:
    slot = Slot(_Value, rolls_back=False)
    holder = SimpleNamespace()
    value = weakref.ref(slot.of(holder))
    assert value() is not None
    del holder
    gc.collect()
    assert value() is None


def _pickled(holder: SimpleNamespace) -> SimpleNamespace:
    return pickle.loads(pickle.dumps(holder))  # type: ignore[no-any-return]


def test_a_value_is_not_copied_with_its_holder() -> None:
    slot: Slot[object] = Slot(lambda: lambda: None, rolls_back=False)
    holder = SimpleNamespace(name="a")
    value = slot.of(holder)
    for again in (copy.deepcopy, _pickled):
        copied = again(holder)
        assert copied.name == "a" and slot.peek(copied) is None
        assert slot.of(copied) is not value
        assert again(copied).name == "a"
        assert slot.of(holder) is value


@dataclass(slots=True, eq=False)
class _Fields:
    names: Counter[str] = field(default_factory=Counter)
    inner: dict[str, list[int]] = field(default_factory=dict)
    size: int = 0


def test_what_rolls_back_is_given_its_value_again_in_place() -> None:
    items: Slot[list[int]] = Slot(list, rolls_back=True)
    table: Slot[dict[str, list[int]]] = Slot(dict, rolls_back=True)
    truth: Slot[bool] = Slot(bool, rolls_back=True)
    several = Slot(_Fields, rolls_back=True)
    late: Slot[set[int]] = Slot(set, rolls_back=True)
    stays: Slot[list[int]] = Slot(list, rolls_back=False)
    holder = SimpleNamespace()
    held = items.of(holder)
    held.append(1)
    table.of(holder)["a"] = [1]
    fields = several.of(holder)
    fields.inner["a"] = [1]
    put_back = slots.remember(holder)
    for _ in range(2):
        held.append(2)
        table.of(holder)["a"].append(2)
        table.of(holder)["b"] = []
        truth.put(holder, True)
        fields.names["x"] += 1
        fields.inner["a"].append(2)
        fields.size = 3
        late.of(holder).add(1)
        stays.of(holder).append(1)
        put_back()
        assert items.of(holder) is held and held == [1]
        assert table.of(holder) == {"a": [1]} and truth.of(holder) is False
        assert several.of(holder) is fields and fields.size == 0 and not fields.names
        assert fields.inner == {"a": [1]} and late.of(holder) == set()
    assert stays.of(holder) == [1, 1]


def test_a_value_that_was_replaced_comes_back_itself() -> None:
    slot: Slot[list[int]] = Slot(list, rolls_back=True)
    holder = SimpleNamespace()
    first = slot.of(holder)
    put_back = slots.remember(holder)
    slot.put(holder, [1])
    put_back()
    assert slot.of(holder) is first and first == []


def test_of_a_holder_without_values_nothing_is_put_back() -> None:
    slots.remember(SimpleNamespace())()


_PACKAGE = Path(bcmend.__file__).parent


def _declared() -> Iterator[tuple[str, ast.Call]]:
    for path in _PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Slot":
                yield f"{path.relative_to(_PACKAGE)}:{node.lineno}", node


def test_every_slot_says_whether_it_rolls_back() -> None:
    said = {place: {each.arg: each.value for each in node.keywords} for place, node in _declared()}
    assert len(said) > 40
    kinds = {
        place: getattr(keywords.get("rolls_back"), "value", None)
        for place, keywords in said.items()
    }
    assert [place for place, kind in kinds.items() if not isinstance(kind, bool)] == []
    assert True in kinds.values() and False in kinds.values()
