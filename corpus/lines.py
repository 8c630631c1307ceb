"""Records of what was measured, as JSON lines: a run that is cut off goes on behind its file."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, TypeVar


class Keyed(Protocol):
    """A record of something; `key` says of what."""

    @property
    def key(self) -> Hashable: ...


Found = TypeVar("Found", bound=Keyed)


def as_line(record: Any) -> str:
    """Return a record, a data class, as JSON in one line."""
    return json.dumps(asdict(record))


def append(path: Path, record: Any) -> None:
    """Add a record to a file at once, so that a run can be cut off anywhere."""
    with path.open("a", encoding="utf-8") as file:
        file.write(as_line(record) + "\n")


def latest(records: Iterable[Found]) -> list[Found]:
    """Return the last record of each key, in the order of the first ones."""
    return list({each.key: each for each in records}.values())


def read(path: Path | None, of_line: Callable[[str], Found]) -> list[Found]:
    """Return the records of a file, the last of each key; none without a file."""
    if path is None or not path.exists():
        return []
    return latest(of_line(line) for line in path.read_text(encoding="utf-8").splitlines() if line)
