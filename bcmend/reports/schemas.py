"""The JSON schemas of what commands print as JSON, as files of the package."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).parent / "schema"

#: The commands that have one.
NAMES: Final = ("explain", "bench", "verify", "report")


def schema_text(name: str) -> str:
    """Return the JSON schema (draft 2020-12) of what a command of ``NAMES`` prints as JSON."""
    return (_FOLDER / f"{name}.json").read_text(encoding="utf-8")
