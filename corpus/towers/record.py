"""Measurements as lines of a file, so that a run can be cut off anywhere and go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from corpus import lines
from corpus.towers.measure import Measurement, Way


def _frozen(row: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}


def of_line(line: str) -> Measurement:
    """Return the measurement of a line."""
    row = _frozen(json.loads(line))
    ways = {name: Way(**_frozen(way)) for name, way in row.pop("ways").items()}
    return Measurement(**row, ways=ways)


def read(path: Path | None) -> dict[tuple[str, str, str], Measurement]:
    """Return the measurements of a file by what was run, the last one of each."""
    return {each.key: each for each in lines.read(path, of_line)}


def append(path: Path | None, found: Measurement) -> None:
    """Add a measurement to a file at once; without a file nothing is written."""
    if path is not None:
        lines.append(path, found)
