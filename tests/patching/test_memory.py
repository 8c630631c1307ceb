"""Nothing of bcmend stays behind a model that was patched, compiled, unpatched and deleted."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests import new_process

ROOT = Path(__file__).parents[2]

#: What belongs to a ``ShapeEnv``, one for each. Torch itself keeps the environment of every trace
#: that has a symbol.
_OF_ENVIRONMENTS = {"MendedShapeEnv", "_Knowledge", "_Uncounted"}
ROUNDS = [12, pytest.param(500, marks=pytest.mark.slow)]


def _after_rounds(rounds: int, *modes: str) -> list[dict[str, Any]]:
    done = new_process.run(
        *(str(Path(__file__).with_name("memory_rounds.py")), str(rounds), *modes),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == rounds // min(10, rounds // 3)
    assert "stock" in modes or len(found[0]["tables"]) > 20
    return found


def _ours(seen: dict[str, Any]) -> dict[str, int]:
    kinds: dict[str, int] = seen["objects"]
    return {kind: kinds[kind] for kind in kinds.keys() - _OF_ENVIRONMENTS - {"others"}}


def _growth(found: list[dict[str, Any]]) -> int:
    return int(found[-1]["objects"]["others"] - found[1]["objects"]["others"])


def _settled(seen: dict[str, Any]) -> dict[str, int]:
    """Return the lengths of all tables but of that which the next call empties."""
    tables: dict[str, int] = dict(seen["tables"])
    assert tables.pop("bcmend.patching.waiting._GONE.", 0) <= 10  # as many as there were rounds
    return tables


@pytest.mark.parametrize("rounds", ROUNDS)
def test_rounds_with_one_class_leave_nothing(rounds: int) -> None:
    found = _after_rounds(rounds, "patched", "one", "compiled")
    early, late = found[1], found[-1]
    assert late["alive"] == {"models": 0, "functions": 1, "codes": 1, "mended codes": 1}
    assert _settled(late) == _settled(early)
    assert late["names"] == early["names"] and len(late["names"]) == 4
    assert _ours(late) == _ours(early)
    environments = late["objects"]["MendedShapeEnv"]
    assert environments <= 3 * rounds  # one for each trace: the first call starts its trace anew
    assert max(late["objects"].get(kind, 0) for kind in _OF_ENVIRONMENTS) == environments


@pytest.mark.slow
def test_less_stays_in_torch_than_without_bcmend() -> None:
    ours, stock = (_after_rounds(50, kind, "one", "compiled") for kind in ("patched", "stock"))
    assert _growth(ours) <= _growth(stock)


@pytest.mark.parametrize("rounds", ROUNDS)
def test_classes_that_are_gone_leave_nothing(rounds: int) -> None:
    found = _after_rounds(rounds, "patched", "fresh", "eager")
    early, late = found[1], found[-1]
    assert late["alive"] == {"models": 0, "functions": 0, "codes": 0, "mended codes": 0}
    assert _settled(late) == _settled(early)
    assert _ours(late) == _ours(early)


@pytest.mark.slow
def test_a_function_that_torch_keeps_is_all_that_keeps_what_is_ours() -> None:
    ours = _after_rounds(30, "patched", "fresh", "compiled")[-1]
    stock = _after_rounds(30, "stock", "fresh", "compiled")[-1]
    kept = ours["alive"].pop("mended codes")
    assert ours["alive"] == stock["alive"]
    assert kept == stock["alive"]["functions"]
    assert ours["objects"]["BodyState"] == kept
