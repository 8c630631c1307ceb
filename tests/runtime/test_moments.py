"""Objects are shown as they were when the statement ran, or the statement is left alone."""

from __future__ import annotations

import copy
from collections import OrderedDict, deque
from typing import Any

import pytest

import bcmend
from bcmend.runtime.records import TEXT, show_as_of
from corpus.patterns.pattern import signs
from tests.equivalence import Make, assert_equivalent


class Shown:
    """Shows all that it has."""

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)

    def __repr__(self) -> str:
        return f"{sorted(vars(self).items())}"


class Slotted:
    """An object whose attributes cannot be put back in a dictionary."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def __repr__(self) -> str:
        return f"Slotted {self.count}"


def test_attributes_are_put_back_while_output_is_written() -> None:
    owner, seen = Shown(count=2, late=1), []
    rows = ((owner, "count", True, 1), (owner, "late", False, None))
    show_as_of(lambda *values: seen.append(repr(values[0])), rows, owner)
    assert seen == ["[('count', 1)]"]
    assert vars(owner) == {"count": 2, "late": 1}


def test_attributes_are_as_before_if_writing_fails() -> None:
    owner = Shown(count=2)

    def fail(*values: object) -> None:
        raise OSError(repr(values))

    with pytest.raises(OSError, match="count', 1"):
        show_as_of(fail, ((owner, "count", True, 1),), owner)
    assert vars(owner) == {"count": 2}


def test_texts_are_formatted_with_what_was_put_back() -> None:
    owner, seen = Shown(count=2), []
    inner = (TEXT, "<{}>", (owner,), ())
    text = (TEXT, "{} {name!r}", (inner,), (("name", "x"),))
    show_as_of(lambda *values: seen.extend(values), ((owner, "count", True, 1),), text)
    assert seen == ["<[('count', 1)]> 'x'"]


def _slots() -> Any:
    shown = Slotted()

    def program(x: Any) -> Any:
        print(shown)
        shown.count = 5
        print(shown)
        shown.count = 0
        return x * 2

    return program


def _set() -> Any:
    held = {0}

    def program(x: Any) -> Any:
        print(held)
        held.add(1)
        print(held, len(held))
        held.discard(1)
        return x * 2

    return program


def _object_behind_an_object() -> Any:
    shown = Shown(inner=Shown(count=0))

    def program(x: Any) -> Any:
        print(shown)
        shown.inner.count = 5
        print(shown)
        shown.inner.count = 0
        return x * 2

    return program


@pytest.mark.parametrize("make", [_slots, _set, _object_behind_an_object])
def test_what_cannot_be_put_back_leaves_the_statement_alone(make: Make) -> None:
    found = assert_equivalent(make, signs, fullgraph=False, graphs=None, recompiles=None)
    assert found.report is not None
    assert {site.refusal for site in found.report.sites if site.status == "withdrawn"} == {
        "cannot-snapshot"
    }


def test_an_object_that_is_not_changed_costs_nothing() -> None:
    def make() -> Any:
        shown = Shown(count=1)

        def program(x: Any) -> Any:
            print(shown, [shown], f"{shown}")
            return x * 2

        return program

    found = assert_equivalent(make, signs)
    assert [site.status for site in (found.report or bcmend.report(make())).sites] == ["mended"]


def _stored_beside_no_operation() -> Any:
    shown = Shown(count=0)

    def program(x: Any) -> Any:
        print(shown)
        shown.count = 5
        print(shown)
        shown.count = 0
        return x

    return program


def _slots_beside_no_operation() -> Any:
    shown = Slotted()

    def program(x: Any) -> Any:
        print(shown)
        shown.count = 5
        return x

    return program


@pytest.mark.parametrize("make", [_stored_beside_no_operation, _slots_beside_no_operation])
def test_a_frame_without_a_graph_shows_objects_as_they_were(make: Make) -> None:
    assert_equivalent(make, signs, fullgraph=False, graphs=None, recompiles=None)


class _Names(dict[str, int]):
    pass


def _changed_later(container: Any, change: Any) -> Make:
    """Return what makes a function that shows an object, changes it, and shows it again."""

    def make() -> Any:
        shown = Shown(held=copy.copy(container))

        def program(x: Any) -> Any:
            print(shown)
            change(shown.held)
            print(shown)
            return x * 2

        return program

    return make


def _changed_later_in_an_arm(container: Any, change: Any) -> Make:
    def make() -> Any:
        shown = Shown(held=copy.copy(container))

        def program(x: Any) -> Any:
            if x.sum() > 0:
                print(shown)
                change(shown.held)
                print(shown)
            return x * 2

        return program

    return make


def _set_an_item(held: Any) -> None:
    held["z"] = 1


def _add(held: Any) -> None:
    held.add(7)


def _append(held: Any) -> None:
    held.append(1)


@pytest.mark.parametrize(
    ("container", "change"),
    [
        (OrderedDict(a=1), _set_an_item),
        (_Names(a=1), _set_an_item),
        ({"a": 1}, _set_an_item),
        ([1], _append),
        (deque([1], maxlen=3), _append),
        ({1}, _add),
    ],
)
@pytest.mark.parametrize("make", [_changed_later, _changed_later_in_an_arm])
def test_what_an_object_holds_is_changed_later(make: Any, container: Any, change: Any) -> None:
    assert_equivalent(make(container, change), signs, fullgraph=False, graphs=None, recompiles=None)
