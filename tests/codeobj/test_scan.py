"""What raw bytecode tells at a glance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bcmend.codeobj.scan import has_subscript


def _reads(x: Any) -> Any:
    return x[0]


def _stores(x: Any) -> None:
    x[1] = 2


def _reads_a_slice(x: Any) -> Any:
    return x[1:2]


def _stores_a_slice(x: Any) -> None:
    x[1:2] = []


def _reads_within(x: Any) -> Any:
    return lambda: x[0]


def _calls(x: Any) -> Any:
    return x.first(0)


@pytest.mark.parametrize("function", [_reads, _stores, _reads_a_slice, _stores_a_slice])
def test_items_are_read_and_stored(function: Callable[..., Any]) -> None:
    assert has_subscript(function.__code__)


def test_nested_code_counts() -> None:
    assert has_subscript(_reads_within.__code__)
    assert not has_subscript(_calls.__code__)
