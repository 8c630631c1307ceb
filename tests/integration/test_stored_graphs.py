"""Each kind of graph that mended code has is found in the caches on disk by a second process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.integration.stored_graphs import PROGRAMS

#: Of the kinds that torch alone would not store.
ALWAYS = ("autocast", "loop_of_numbers")


def _run(folder: Path, names: Sequence[str], *options: str) -> dict[str, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.stored_graphs", *options, *names],
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    assert [name for name, each in found.items() if not each["equal"]] == []
    return found


@pytest.mark.parametrize(
    "names",
    [ALWAYS, pytest.param([*PROGRAMS], marks=pytest.mark.slow)],
    ids=["two", "all"],
)
def test_a_second_process_compiles_nothing(tmp_path: Path, names: Sequence[str]) -> None:
    first, second = _run(tmp_path, names), _run(tmp_path, names)
    assert [name for name, each in first.items() if each.get("bypass")] == []
    assert [name for name, each in second.items() if not each.get("hit") or "miss" in each] == []


@pytest.mark.slow
def test_autocast_around_a_graph_is_in_its_key(tmp_path: Path) -> None:
    _run(tmp_path, ["autocast"])
    for dtype in ("float16", "bfloat16"):
        found = _run(tmp_path, ["autocast"], "--around", dtype)
        assert [name for name, each in found.items() if "hit" in each] == []
