"""What a text can depend on is found in the code that makes it, and nothing of that is run."""

from __future__ import annotations

import dataclasses
import random
import sys
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bcmend.tracing.effects.text_reach import TextReach, has_own_text

LIST: list[int] = []
OTHER: list[int] = []
NUMBER = 0


def _length() -> int:
    return len(LIST) + NUMBER


def _grown() -> int:
    LIST.append(1)
    return len(LIST)


class Space:
    held = LIST
    other = OTHER


def _of(value: object) -> TextReach:
    return TextReach([value], [])


class Direct:
    def __repr__(self) -> str:
        return f"{len(LIST)}"

    def unrelated(self) -> int:
        return len(OTHER)


class Inherited(Direct):
    """Has the text of another class."""


class Called:
    def __repr__(self) -> str:
        return f"{_length()}"


class ByAMethod:
    def __format__(self, form: str) -> str:
        return self.inner()

    def inner(self) -> str:
        return str(self.size)

    @property
    def size(self) -> int:
        return len(LIST)


class OfAClass:
    def __str__(self) -> str:
        return f"{Space.held}"


class ByDefault:
    def __repr__(self, held: Any = LIST) -> str:
        return f"{held}"


class OfAModule:
    def __repr__(self) -> str:
        import tests.tracing.effects.test_text_reach as here

        return f"{here.LIST}"


class Weakly:
    def __init__(self) -> None:
        self.held = Direct()
        self.behind = weakref.ref(self.held)


class Meta(type):
    def __repr__(cls) -> str:
        return f"{len(LIST)}"


class Shown(metaclass=Meta):
    """A class with a text of its own."""


class Missing(dict[str, int]):
    def __missing__(self, key: str) -> int:
        return len(LIST)


@dataclasses.dataclass
class Holder:
    held: object


@pytest.mark.parametrize(
    "value",
    [
        *(Direct(), Inherited(), Called(), ByAMethod(), OfAClass(), ByDefault(), OfAModule()),
        *(Weakly(), Shown, Missing(), Holder(Direct()), [Direct()], {"a": (Direct(),)}),
        ValueError(Direct()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_global_list_is_found_behind(value: object) -> None:
    found = _of(value)
    assert id(LIST) in found.identities
    assert id(OTHER) not in found.identities
    assert not found.is_open
    assert not found.changes


def test_a_variable_of_a_closure_is_found_with_its_cell() -> None:
    held: list[int] = []

    class Local:
        def __repr__(self) -> str:
            return f"{held}"

    found = _of(Local())
    (cell,) = Local.__repr__.__closure__ or ()
    assert {id(held), id(cell)} <= found.identities


def test_names_of_global_variables_are_those_of_all_that_is_called() -> None:
    assert {"NUMBER", "LIST"} <= _of(Called()).names
    assert "NUMBER" not in _of(Direct()).names


class OfTheInterpreter:
    def __repr__(self) -> str:
        return f"{sys.modules[__name__].LIST}"


class OfAllGlobals:
    def __repr__(self) -> str:
        return f"{globals()['LI' + 'ST']}"


class OfChance:
    def __repr__(self) -> str:
        return f"{random.random()}"


class OfAFile:
    def __init__(self) -> None:
        self.path = Path("none")

    def __repr__(self) -> str:
        return f"{self.path.exists()}"


@pytest.mark.parametrize("kind", [OfTheInterpreter, OfAllGlobals, OfChance, OfAFile])
def test_what_looks_anywhere_is_open(kind: Any) -> None:
    assert _of(kind()).is_open


@pytest.mark.parametrize(
    "value",
    [Holder(Path("x")), torch.nn.Linear(2, 2), SimpleNamespace(a=1), torch.zeros(2), ValueError(1)],
    ids=lambda value: type(value).__name__,
)
def test_what_torch_and_the_standard_library_show_is_only_what_they_hold(value: object) -> None:
    found = _of(value)
    assert not found.is_open
    assert not found.changes


class Grows:
    def __repr__(self) -> str:
        return f"{_grown()}"


class Stores:
    def __repr__(self) -> str:
        global NUMBER
        NUMBER = 1
        return ""


class Sets:
    def __repr__(self) -> str:
        Space.held = []
        return ""


class Notes:
    def __init__(self) -> None:
        self.log: list[int] = []

    def __len__(self) -> int:
        self.log.append(1)
        return 1

    def __repr__(self) -> str:
        return f"{len(self)}"


class Slices:
    def __repr__(self) -> str:
        LIST[1:] = [1]
        return ""


class Renamed:
    def __repr__(self) -> str:
        lines: list[int] = []
        lines = LIST
        lines[0] = 2
        return ""


class Unpacked:
    def __repr__(self) -> str:
        lines, table = LIST, {}  # type: ignore[var-annotated]
        lines[0] = 2
        return f"{table}"


class Held:
    def __init__(self) -> None:
        self.held = LIST

    def __repr__(self) -> str:
        self.held[0] = 3
        return ""


class Grown(list[int]):
    def __init__(self) -> None:
        super().__init__()
        self.size = 0

    def __len__(self) -> int:
        super().append(1)
        return 1

    def __repr__(self) -> str:
        return f"{len(self)}"


@pytest.mark.parametrize(
    "kind",
    [Grows, Stores, Sets, Notes, Slices, Renamed, Unpacked, Held, Grown],
    ids=lambda kind: kind.__name__,
)
def test_what_a_text_changes_beside_its_object_is_named(kind: Any) -> None:
    assert _of(kind()).changes


class Lines:
    def __init__(self) -> None:
        self.count = 0

    def __repr__(self) -> str:
        self.count += 1
        lines = []
        lines.append("a")
        table = {}
        table["b"] = lines
        return f"{table}"


def test_lists_that_a_text_makes_and_attributes_of_its_object_are_its_own() -> None:
    assert not _of(Lines()).changes


def test_a_kind_without_an_object_is_looked_at() -> None:
    assert id(LIST) in TextReach([], [Called]).identities


def test_a_class_has_a_text_of_its_own_if_it_defines_one() -> None:
    assert has_own_text(Direct)
    assert not has_own_text(Inherited)
    assert not has_own_text(ValueError)


def test_no_code_of_the_program_runs() -> None:
    class Never:
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(name)

        def __eq__(self, other: object) -> bool:
            raise AssertionError

        def __hash__(self) -> int:
            raise AssertionError

        def __bool__(self) -> bool:
            raise AssertionError

        def __len__(self) -> int:
            raise AssertionError

    value = Never()
    assert id(value) in _of([value]).identities
