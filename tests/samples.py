"""Parts of long lists of cases: the same ones in each run, the others on demand (`-m slow`)."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


def is_of_a_sample(name: str, *, of: int) -> bool:
    """Is a case of a sample that holds one of so many, by its name: others change nothing in it?"""
    return zlib.crc32(name.encode()) % of == 0


def sampled(cases: Iterable[Any], name: Callable[[Any], str] = str, *, of: int) -> list[Any]:
    """Return parameters of a test, of which those that are in no sample are tried on demand."""
    return [
        _parameters(each, name=name(each), is_slow=not is_of_a_sample(name(each), of=of))
        for each in cases
    ]


def in_turn(
    cases: Sequence[Any], ways: Sequence[Any], name: Callable[[Any], str] = str
) -> list[Any]:
    """Return pairs of a case and a way: each case in one way, in turn, in the others on demand."""
    return [
        _parameters(case, way, name=f"{name(case)}-{way}", is_slow=at % len(ways) != place)
        for at, case in enumerate(cases)
        for place, way in enumerate(ways)
    ]


def _parameters(*values: Any, name: str, is_slow: bool) -> Any:
    return pytest.param(*values, id=name, marks=[pytest.mark.slow] if is_slow else [])


def name_of(function: Any) -> str:
    """Return what a function or a class is called in a list of cases."""
    return str(function.__name__)
