"""What all tests share: strict mode, and no registration of an earlier test."""

from __future__ import annotations

import os
from collections.abc import Iterator

os.environ.setdefault("BCMEND_STRICT", "1")

import pytest

from tests.registrations import registrations_undone


@pytest.fixture(autouse=True)
def _registrations_are_undone() -> Iterator[None]:
    with registrations_undone():
        yield
