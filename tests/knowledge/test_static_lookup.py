"""Objects and code are read without running any of it."""

from __future__ import annotations

import json
import sys
import types
from typing import Any, NoReturn

import pytest

from bcmend.knowledge.static_lookup import (
    ancestors,
    attributes,
    captured,
    dictionary,
    entries,
    imported_by,
    is_a,
    named_by,
    namespace,
    qualified_name,
    read_slot,
)


def _explode(*arguments: object, **named: object) -> NoReturn:
    raise AssertionError("code of the user ran")


class _ExplosiveMeta(type):
    __mro__ = property(_explode)  # type: ignore[assignment]
    __getattribute__ = _explode
    __hash__ = _explode  # type: ignore[assignment]
    __eq__ = _explode
    __instancecheck__ = _explode
    __subclasscheck__ = _explode


class _Explosive(metaclass=_ExplosiveMeta):
    __class__ = property(_explode)  # type: ignore[assignment]
    __getattribute__ = _explode  # type: ignore[assignment]
    __hash__ = _explode  # type: ignore[assignment]
    __eq__ = _explode
    __bool__ = _explode
    __len__ = _explode
    __iter__ = _explode


def test_an_object_that_explodes_on_any_touch_is_read() -> None:
    explosive = object.__new__(_Explosive)
    kind = type(explosive)
    object.__setattr__(explosive, "held", 3)
    with pytest.raises(AssertionError, match="code of the user ran"):
        explosive.held  # noqa: B018
    assert qualified_name(kind) == "_Explosive"
    assert [*map(id, ancestors(kind))] == [id(kind), id(object)]
    assert "__len__" in namespace(kind)
    assert dictionary(explosive) == {"held": 3}
    assert list(attributes(explosive)) == [("held", 3)]
    assert is_a(explosive, kind)
    assert not is_a(explosive, int)


def test_a_property_in_place_of_the_dictionary_is_passed_by() -> None:
    class Plain:
        pass

    class Hidden(Plain):
        @property
        def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
            _explode()

    hidden = Hidden()
    hidden.seen = 1  # type: ignore[attr-defined]
    assert dictionary(hidden) == {"seen": 1}


def test_a_foreign_descriptor_in_place_of_the_dictionary_is_passed_by() -> None:
    foreign = types.FunctionType.__dict__["__dict__"]
    odd = type("Odd", (), {"__dict__": foreign, "__slots__": ()})()
    assert dictionary(odd) == {}


def test_slots_are_attributes_and_unset_ones_are_not() -> None:
    class Base:
        __slots__ = ("first",)

    class Slotted(Base):
        __slots__ = ("second", "unset")

    slotted = Slotted()
    slotted.first, slotted.second = 1, 2
    assert dict(attributes(slotted)) == {"first": 1, "second": 2}
    assert dictionary(slotted) == {}


def test_objects_without_attributes_have_none() -> None:
    for value in (3, "text", None, object(), len, [1]):
        assert dictionary(value) == {}


def test_entries_of_a_dictionary_subclass_bypass_its_methods() -> None:
    class Odd(dict[str, int]):
        items = _explode  # type: ignore[assignment]
        __iter__ = _explode
        __getitem__ = _explode

    assert entries(Odd(one=1)) == [("one", 1)]
    assert entries([("one", 1)]) == []


def test_captured_variables_leave_out_empty_cells() -> None:
    def outer(set_one: int) -> Any:
        def inner() -> object:
            return set_one, set_later

        if set_one < 0:
            set_later = 1
        return inner

    assert captured(outer(5)) == [("set_one", 5)]
    assert captured(_explode) == []


def test_read_slot_bypasses_a_subclass() -> None:
    class Loud(property):
        fget = property(_explode)  # type: ignore[assignment]

    assert read_slot(Loud(_explode), property, "fget") is _explode


def test_names_of_nested_code_count() -> None:
    def function(value: Any) -> Any:
        def nested() -> Any:
            return [value.deep(item) for item in other]  # noqa: F821

        return nested, lambda: value.deeper

    names = named_by(function.__code__)
    assert {"deep", "other", "deeper"} <= set(names)
    assert len(names) == len(set(names))


def test_texts_count_only_where_they_may_be_names() -> None:
    def dynamic(value: Any) -> Any:
        return getattr(value, "hidden_name"), "not a name"  # noqa: B009

    def static(value: Any) -> Any:
        return value, "hidden_name"

    assert "hidden_name" in named_by(dynamic.__code__)
    assert "not a name" not in named_by(dynamic.__code__)
    assert "hidden_name" not in named_by(static.__code__)


def test_imports_are_looked_up_and_never_made(monkeypatch: pytest.MonkeyPatch) -> None:
    parent, child = types.ModuleType("made.up"), types.ModuleType("made.up.child")
    monkeypatch.setitem(sys.modules, "made.up", parent)
    monkeypatch.setitem(sys.modules, "made.up.child", child)
    monkeypatch.setitem(sys.modules, "made.odd", "no module at all")  # type: ignore[arg-type]
    source = """
def function():
    import json.decoder
    from .child import thing
    from . import child
    from ..up import child
    import never_loaded_anywhere, made.odd
    def nested():
        from made.up import other
"""
    scope: dict[str, Any] = {}
    exec(source, scope)
    found = imported_by(scope["function"].__code__, "made.up")
    assert found == [json.decoder, child, parent, parent, parent]
    assert "never_loaded_anywhere" not in sys.modules


def test_code_without_imports_imports_nothing() -> None:
    assert imported_by(_explode.__code__, "tests") == []


def test_a_relative_import_behind_many_constants_keeps_its_level(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parent, child = types.ModuleType("made"), types.ModuleType("made.child")
    monkeypatch.setitem(sys.modules, "made", parent)
    monkeypatch.setitem(sys.modules, "made.child", child)
    # The level and the name come behind 300 others, so that both need EXTENDED_ARG.
    constants = ", ".join(f"{number}.5 * attribute.a{number}" for number in range(300))
    source = f"def function(attribute):\n    x = [{constants}]\n    from .child import y"
    scope: dict[str, Any] = {}
    exec(source, scope)
    assert imported_by(scope["function"].__code__, "made") == [child]
