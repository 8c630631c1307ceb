"""Objects are shown as they were when the statement ran, or the statement is left alone."""

from __future__ import annotations

import copy
import gc
import weakref
from collections import OrderedDict, deque
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._dynamo.variables import ConstantVariable, ListVariable, TupleVariable
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.misc import StringFormatVariable

import bcmend
from bcmend.delivery.codec import TEXT, encoded
from bcmend.delivery.records import show_as_of
from bcmend.tracing.effects import written_objects
from bcmend.tracing.effects.reach import Reach, identities_behind
from bcmend.tracing.output import object_snapshot
from bcmend.tracing.output.object_snapshot import Moment
from bcmend.tracing.search.falsified import Falsified
from bcmend.tracing.sites.site_table import LiveSite
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
    inner = encoded(TEXT, "<{}>", (owner,), ())
    text = encoded(TEXT, "{} {name!r}", (inner,), (("name", "x"),))
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


def _constant(value: object) -> VariableTracker:
    return ConstantVariable.create(value)


class _ObjectVariable(VariableTracker):
    """Stands for an object of which only its class knows what it shows."""


def test_the_objects_behind_an_argument_are_all_that_it_holds() -> None:
    inner, item, key = Slotted(), Shown(), Shown()
    outer = Shown(held=[item, (1, {key: "text"})], inner=inner, tensor=torch.ones(2))
    found = identities_behind([outer])
    for each in (outer, inner, item, key, outer.held, outer.tensor):
        assert id(each) in found
    assert id(1) not in found


def test_objects_that_hold_each_other_are_looked_at_once() -> None:
    one, other = Shown(), Shown()
    one.other, other.one = other, one
    assert {id(one), id(other)} <= identities_behind([one])


def test_no_object_is_left_out_for_their_number_and_no_code_of_theirs_runs() -> None:
    class Proxy:
        @property
        def __dict__(self) -> Any:
            return {"more": Proxy()}

        @property
        def __class__(self) -> Any:
            raise AssertionError

    last = Shown()
    many = [[Proxy() for _ in range(100)] for _ in range(300)]
    found = identities_behind([Shown(held=(partial(print, last), many))])
    assert id(last) in found
    assert id(many[-1][-1]) in found


def test_what_an_object_holds_is_looked_through_when_asked_for_and_once() -> None:
    held: list[object] = []
    reach = Reach([held])
    held.append(Shown())
    assert id(held[0]) in reach.identities
    assert reach.identities is reach.identities


def test_what_a_record_copies_is_not_watched_and_objects_in_it_are() -> None:
    shown = _ObjectVariable()
    inside = ListVariable([_constant(1), TupleVariable([shown])])
    text = StringFormatVariable("{} {name}", [shown], {"name": _constant("x")})
    assert list(object_snapshot._not_copied([_constant(2), inside, text])) == [shown, shown]


def test_a_record_without_objects_keeps_nothing_of_them() -> None:
    site = LiveSite("module.f:1", "output", _constant.__code__)
    values = [ListVariable([_constant(1)]), _constant("text")]
    tx: Any = SimpleNamespace(output=SimpleNamespace())
    assert object_snapshot.of_objects(tx, site, values, lambda value: value) is None


def test_a_text_is_left_to_the_delivery_also_inside_a_tuple() -> None:
    shown, plain = _ObjectVariable(), _constant("plain")
    text = StringFormatVariable("<{}>", [shown], {"name": plain})
    found: Any = object_snapshot.unformatted(TupleVariable([plain, text]))
    assert found.items[0] is plain
    *_, form, parts, named = found.items[1].items
    assert (form.value, parts.items) == ("<{}>", [shown])
    assert [[each.value for each in pair.items] for pair in named.items] == [["name", "plain"]]


def test_what_is_no_text_stays_the_same_object() -> None:
    value = TupleVariable([_constant(1)])
    assert object_snapshot.unformatted(value) is value


def _moment(site: LiveSite, *inside: VariableTracker, stored: Any = None) -> Moment:
    return Moment(
        site,
        inside=frozenset(inside),
        behind=Reach(()),
        attributes=stored or {},
        containers=(),
        versions={},
        owners={},
        put_back={},
        copied=frozenset(),
        known=frozenset(),
    )


def _effects(stores: Any) -> Any:
    return SimpleNamespace(id_to_variable={}, store_attr_mutations=stores)


def test_a_store_after_the_record_is_told_from_one_before_it() -> None:
    site = LiveSite("module.f:1", "output", _constant.__code__)
    owner, before, later = _ObjectVariable(), _constant(1), _constant(2)
    moment = _moment(site, owner, stored={owner: {"a": before, "b": before}})
    effects = _effects({owner: {"a": before, "b": later}})
    assert list(object_snapshot._stored_later(effects, moment)) == [(owner, {"b"})]


def test_a_store_to_an_object_that_the_record_does_not_hold_changes_nothing() -> None:
    site = LiveSite("module.f:1", "output", _constant.__code__)
    moment = _moment(site, _ObjectVariable())
    object_snapshot._check(_effects({_ObjectVariable(): {"a": _constant(1)}}), [moment])
    assert site.active


def test_an_object_without_a_dictionary_has_the_site_withdrawn() -> None:
    site = LiveSite("module.f:1", "output", _constant.__code__)
    owner = _ObjectVariable()
    with pytest.raises(Falsified):
        object_snapshot._check(_effects({owner: {"b": _constant(1)}}), [_moment(site, owner)])
    assert (site.withdrawn, site.detail) == ("cannot-snapshot", "b of an object is stored later")


@pytest.mark.parametrize(("line", "stores"), [("self.seen = 1", True), ("seen = 1", False)])
def test_code_that_was_looked_at_for_stores_is_not_kept_alive(line: str, stores: bool) -> None:
    space: dict[str, Any] = {}
    exec(f"def __str__(self):\n    {line}\n    return ''", space)
    code = weakref.ref(space["__str__"].__code__)
    assert written_objects._stores(space["__str__"].__code__) is stores
    space.clear()
    gc.collect()
    assert code() is None


class _Failed(Exception):
    """An exception of the program."""


@pytest.mark.parametrize("kind", [ValueError, _Failed])
@pytest.mark.parametrize("is_in_an_arm", [True, False])
def test_an_exception_is_shown_with_the_arguments_it_had(kind: Any, is_in_an_arm: bool) -> None:
    def in_an_arm(x: torch.Tensor) -> Any:
        error = kind("first")
        if x.sum() > 0:
            print(error, x.sum())
            x = x + 1
        error.args = ("second", 2)
        return x.sin(), error.args

    def twice(x: torch.Tensor) -> Any:
        error = kind("first")
        print(error, x.sum())
        error.args = ("second", 2)
        print(repr(error), x.sum())
        return x.sin()

    _assert_equal(lambda: in_an_arm if is_in_an_arm else twice)


def test_a_cause_is_not_in_the_text_of_an_exception() -> None:
    def program(x: torch.Tensor) -> Any:
        error = _Failed("first")
        print(error, x.sum())
        error.__cause__ = KeyError("cause")
        return x.sin()

    assert_equivalent(lambda: program, signs)


class _Formatted:
    """Notes that it was formatted; there since before the call, or made in it."""

    def __init__(self, seen: list[int]) -> None:
        self.seen = seen

    def __format__(self, spec: str) -> str:
        self.seen.append(len(self.seen))
        return "formatted"


def _format_in_an_arm() -> Any:
    seen: list[int] = []
    shown = _Formatted(seen)

    def program(x: torch.Tensor) -> Any:
        if x.sum() > 0:
            print(f"{shown} {x.sum()}")
            x = x * 2
        return x * len(seen), len(seen)

    return program


def _format_at_once() -> Any:
    seen: list[int] = []
    shown = _Formatted(seen)

    def program(x: torch.Tensor) -> Any:
        print(f"{shown:>3}", x.sum())
        return x * len(seen), len(seen)

    return program


def _format_what_is_made() -> Any:
    seen: list[int] = []

    def program(x: torch.Tensor) -> Any:
        text = f"{_Formatted(seen)} {x.sum()}"
        print(text)
        return x * len(seen), len(seen)

    return program


def _format_in_a_check() -> Any:
    seen: list[int] = []
    shown = _Formatted(seen)

    def program(x: torch.Tensor) -> Any:
        text = f"{shown}"
        if x.sum() > 0:
            raise ValueError(text)
        return x * len(seen), text

    return program


@pytest.mark.parametrize(
    "make", [_format_in_an_arm, _format_at_once, _format_what_is_made, _format_in_a_check]
)
def test_what_formatting_changes_is_changed_when_it_is_formatted(make: Any) -> None:
    _assert_equal(make)


def _assert_equal(make: Any) -> None:
    for backend in ("eager", "aot_eager"):
        assert_equivalent(
            make,
            lambda: [*signs(), *signs()],
            backend=backend,
            fullgraph=False,
            graphs=None,
            recompiles=None,
        )
