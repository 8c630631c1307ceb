"""What is said of a torch that was compared with a recorded release."""

from __future__ import annotations

import pytest

from bcmend.dynamo.contract import recorded
from bcmend.dynamo.contract.difference import Difference
from bcmend.patching import torch_check
from bcmend.patching.torch_check import ComparisonResult

RELEASE = recorded.Release("2.13.0", "0" * 40, pythons=("3.11",), facts={})
ANY_ALL = "bcmend.tracing.handlers.any_all"
MERGE = "bcmend.tracing.merging.merge"


def _compared(monkeypatch: pytest.MonkeyPatch, *found: Difference) -> ComparisonResult:
    monkeypatch.setattr(torch_check, "missing", lambda: ())
    monkeypatch.setattr(torch_check, "differences", lambda release: list(found))
    return torch_check.compared(RELEASE)


def _body(subject: str, *needed_by: str) -> Difference:
    return Difference(subject, "body", "1", "2", needed_by)


def test_what_nobody_needs_is_no_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _compared(monkeypatch, _body("A.run"))
    assert not found.core and not found.aside
    assert "nothing" in found.words() and "2.13.0" in found.words()


def test_a_group_stands_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _compared(monkeypatch, _body("A.run", ANY_ALL), _body("B.run", ANY_ALL))
    assert not found.core
    ((group, subjects),) = found.aside.items()
    assert subjects == ("A.run", "B.run") and "any" in group
    assert "A.run and B.run" in found.words()


def test_what_the_core_needs_too_is_a_matter_of_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _compared(monkeypatch, _body("A.run", ANY_ALL, MERGE), _body("B.run", ANY_ALL))
    assert found.core == ("A.run",)
    assert "A.run" in found.words() and "B.run" not in found.words()


def test_only_a_few_of_many_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _compared(monkeypatch, *(_body(f"A.run{number}", MERGE) for number in range(9)))
    assert len(found.core) == 9
    assert found.words().count("A.run") < 9 and "more" in found.words()


def test_names_that_are_missing_are_all_that_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_check, "missing", lambda: ("torch._dynamo.exc.NoSuch",))
    found = torch_check.compared(RELEASE)
    assert found.core == found.lacking == ("torch._dynamo.exc.NoSuch",)
    assert found.words() == "torch._dynamo.exc.NoSuch is missing"


def test_a_module_that_cannot_be_imported_is_as_a_name_that_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> None:
        raise AttributeError("type object 'Model' has no attribute '_fields'.")

    monkeypatch.setattr(torch_check, "declare_hooks", fail)
    torch_check.missing.cache_clear()
    try:
        found = torch_check.compared(RELEASE)
    finally:
        torch_check.missing.cache_clear()
    assert found.core == found.lacking and "_fields" in found.words()
    assert not found.words().endswith(".") and ". " not in found.words()


@pytest.mark.parametrize(
    "error",
    [
        ImportError("cannot import name 'x'"),
        AttributeError("module has no attribute 'x'. Did you mean 'y'?"),
        KeyError("x"),
        TypeError("takes 1 argument\nbut 2 were given"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_torch_that_cannot_be_described_is_not_used(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(torch_check, "missing", lambda: ())
    monkeypatch.setattr(torch_check, "described", fail)
    found = torch_check.compared(RELEASE)
    assert found.core and not found.aside
    assert ". " not in found.words() and "\n" not in found.words()
