"""The table of substitutes, and what the user may add to it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import bcmend
from bcmend import substitutes
from bcmend.runtime import primitives, substitution
from bcmend.substitutes import TABLE

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def _nothing_stays_registered() -> Iterator[None]:
    yield
    for target in substitutes.registered():
        substitutes.unregister(target)


class Meter:
    def read(self, factor: int = 1) -> int:
        return factor

    @staticmethod
    def count(value: int) -> int:
        return value


def doubled(x: Any) -> Any:
    return x * 2


@pytest.mark.parametrize("row", TABLE.values(), ids=list(TABLE))
def test_every_row_can_be_answered_and_is_proved(row: substitutes.Substitute) -> None:
    assert primitives.ANSWERING
    assert row.answer in substitution.ANSWERS
    assert row.becomes and row.condition
    file, _, name = row.proof.partition("::")
    assert f"def {name}(" in (ROOT / file).read_text()


def test_page_of_the_docs_is_the_table() -> None:
    assert (ROOT / "docs" / "substitutes.md").read_text() == substitutes.page()


def test_callables_are_known_by_what_their_names_stand_for() -> None:
    found = substitutes.of_callable(torch.autograd.Variable)
    assert found is not None and found.answer == "variable"
    assert substitutes.of_callable(doubled) is None
    assert substitutes.of_callable(random) is None

    def _check_with(x: Any) -> Any:
        return x

    assert substitutes.of_callable(_check_with) is None


def test_registered_by_name_and_by_object() -> None:
    bcmend.register_substitute(f"{__name__}.Meter.read", doubled)
    bcmend.register_substitute(Meter.count, doubled)
    for found in (substitutes.of_callable(Meter.read), substitutes.of_callable(Meter.count)):
        assert found is not None and found.replacement is doubled
    assert substitutes.registered() == [f"{__name__}.Meter.read", Meter.count]


def test_a_method_of_one_object_is_of_that_object_alone() -> None:
    one, other = Meter(), Meter()
    bcmend.register_substitute(one.read, doubled)
    assert substitutes.of_callable(one.read) is not None
    assert substitutes.of_callable(other.read) is None


def test_the_last_registration_holds() -> None:
    bcmend.register_substitute(Meter.count, doubled)
    bcmend.register_substitute(Meter.count, abs)
    found = substitutes.of_callable(Meter.count)
    assert found is not None and found.replacement is abs


@pytest.mark.parametrize(
    ("target", "replacement"),
    [
        (3, doubled),
        ("unqualified", doubled),
        ("a module.function", doubled),
        (doubled, 3),
        ("package.function", None),
        (doubled, doubled),
    ],
)
def test_bad_input_changes_nothing(target: Any, replacement: Any) -> None:
    with pytest.raises(bcmend.SubstituteError) as caught:
        bcmend.register_substitute(target, replacement)
    assert isinstance(caught.value, bcmend.BcmendError) and isinstance(caught.value, ValueError)
    assert substitutes.registered() == []


def test_code_that_names_no_substitute_is_left_alone() -> None:
    assert not substitutes.may_substitute(doubled.__code__, globals())

    def outer(x: Any) -> Any:
        return [torch.autograd.Variable(each) for each in x]

    assert substitutes.may_substitute(outer.__code__, globals())


def test_a_substitute_is_found_under_another_name() -> None:
    def program(x: Any) -> Any:
        return V(x)  # type: ignore[name-defined]  # noqa: F821

    assert not substitutes.may_substitute(program.__code__, {"V": doubled})
    assert substitutes.may_substitute(program.__code__, {"V": torch.autograd.Variable})
