"""The table of substitutes, and what the user may add to it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

import bcmend
from bcmend.knowledge import replaced_calls
from bcmend.knowledge.substitute_rows import TABLE
from bcmend.tracing.entry import primitive_namespace  # noqa: F401  (registers the answers)
from bcmend.tracing.substitutes import dispatch

ROOT = Path(__file__).parents[2]


class Meter:
    def read(self, factor: int = 1) -> int:
        return factor

    @staticmethod
    def count(value: int) -> int:
        return value


def doubled(x: Any) -> Any:
    return x * 2


@pytest.mark.parametrize("row", TABLE.values(), ids=list(TABLE))
def test_every_row_can_be_answered_and_has_a_domain(row: replaced_calls.Substitute) -> None:
    assert row.answer in dispatch.ANSWERS
    assert row.becomes and row.condition
    assert row.domain is not None and row.seen_in


def test_page_of_the_docs_is_the_table() -> None:
    assert (ROOT / "docs" / "substitutes.md").read_text() == replaced_calls.page()


def test_callables_are_known_by_what_their_names_stand_for() -> None:
    found = replaced_calls.of_callable(torch.autograd.Variable)
    assert found is not None and found.answer == "variable"
    assert replaced_calls.of_callable(doubled) is None
    assert replaced_calls.of_callable(random) is None

    def _check_with(x: Any) -> Any:
        return x

    assert replaced_calls.of_callable(_check_with) is None


def test_registered_by_name_and_by_object() -> None:
    bcmend.register_capture(f"{__name__}.Meter.read", doubled)
    bcmend.register_capture(Meter.count, doubled)
    for found in (replaced_calls.of_callable(Meter.read), replaced_calls.of_callable(Meter.count)):
        assert found is not None and found.replacement is doubled
    assert replaced_calls.REGISTERED.targets() == [f"{__name__}.Meter.read", Meter.count]


def test_a_method_of_one_object_is_of_that_object_alone() -> None:
    one, other = Meter(), Meter()
    bcmend.register_capture(one.read, doubled)
    assert replaced_calls.of_callable(one.read) is not None
    assert replaced_calls.of_callable(other.read) is None


def test_the_last_registration_holds() -> None:
    bcmend.register_capture(Meter.count, doubled)
    bcmend.register_capture(Meter.count, abs)
    found = replaced_calls.of_callable(Meter.count)
    assert found is not None and found.replacement is abs


@pytest.mark.parametrize(
    ("target", "replacement"),
    [
        (3, doubled),
        ("unqualified", doubled),
        ("a module.function", doubled),
        (doubled, 3),
        ("package.function", None),
        ("sys.no_such_function", doubled),
        (doubled, doubled),
    ],
)
def test_bad_input_changes_nothing(target: Any, replacement: Any) -> None:
    with pytest.raises(bcmend.CaptureError) as caught:
        bcmend.register_capture(target, replacement)
    assert isinstance(caught.value, bcmend.BcmendError) and isinstance(caught.value, ValueError)
    assert replaced_calls.REGISTERED.targets() == []


def test_code_that_names_no_substitute_is_left_alone() -> None:
    assert not replaced_calls.may_substitute(doubled.__code__, globals())

    def outer(x: Any) -> Any:
        return [torch.autograd.Variable(each) for each in x]

    assert replaced_calls.may_substitute(outer.__code__, globals())


def test_a_substitute_is_found_under_another_name() -> None:
    def program(x: Any) -> Any:
        return V(x)  # type: ignore[name-defined]  # noqa: F821

    assert not replaced_calls.may_substitute(program.__code__, {"V": doubled})
    assert replaced_calls.may_substitute(program.__code__, {"V": torch.autograd.Variable})
