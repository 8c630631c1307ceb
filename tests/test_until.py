"""What serves older releases of torch alone goes with the last of them."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import pytest
from packaging.version import Version

import bcmend.tracing
from bcmend.dynamo.contract import recorded

FAULTS = Path(__file__).parent / "tracing" / "backends" / "test_faults_of_torch.py"


def _marks() -> dict[str, str]:
    """Return the faults that modules of bcmend work round up to a release, by their tests."""
    found: dict[str, str] = {}
    for each in pkgutil.walk_packages(bcmend.tracing.__path__, f"{bcmend.tracing.__name__}."):
        found |= getattr(importlib.import_module(each.name), "UNTIL", {})
    return found


def _outdated(marks: dict[str, str], oldest: str) -> list[str]:
    return [test for test, until in marks.items() if Version(oldest) >= Version(until)]


def test_nothing_serves_releases_alone_that_are_not_supported() -> None:
    oldest = min((each.minor for each in recorded.releases() if each.pythons), key=Version)
    assert _outdated(_marks(), oldest) == [], "these workarounds can go"


@pytest.mark.parametrize("oldest", ["2.14", "2.15", "2.16"])
def test_a_workaround_goes_with_the_last_release_that_needs_it(oldest: str) -> None:
    marks = {"one": "2.14", "other": "2.16"}
    expected = ["one"] if oldest != "2.16" else ["one", "other"]
    assert _outdated(marks, oldest) == expected


def test_each_is_a_test_of_a_fault_that_has_a_condition() -> None:
    text = FAULTS.read_text(encoding="utf-8")
    bodies = dict(re.findall(r"^def (test_\w+)\((.*?)(?=^\S|\Z)", text, re.M | re.S))
    assert len(_marks()) >= 7
    for test in _marks():
        assert re.search(r"[A-Z]+_[A-Z_]+", bodies[test]), test
