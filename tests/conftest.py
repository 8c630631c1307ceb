"""What all tests share: strict mode, no registration of an earlier test, no limits of time."""

from __future__ import annotations

import os
from collections.abc import Iterator

os.environ.setdefault("BCMEND_STRICT", "1")

import hypothesis
import pytest

from tests.registrations import registrations_undone

# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")


@pytest.fixture(autouse=True)
def _registrations_are_undone() -> Iterator[None]:
    with registrations_undone():
        yield
