"""Makes ratios visible: pytest captures what a passing test prints."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench.ratios import Ratio


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Callable[[Ratio], Ratio]:
    """Prints a ratio past pytest's capture and hands it on."""

    def shown(ratio: Ratio) -> Ratio:
        with capsys.disabled():
            print(f"\n{ratio}")
        return ratio

    return shown
