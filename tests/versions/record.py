"""What became of tests and patterns: a line each in a file, behind which a later run goes on."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

PASSED: Final = "passed"
FAILED: Final = "failed"
SKIPPED: Final = "skipped"
#: The outcome of a test that a run has begun with, and not come to.
NOT_RUN: Final = "not run"

#: What becomes of a pattern: one graph, which is eager execution; a graph that is not; none.
WHOLE: Final = "whole"
DIFFERS: Final = "differs"
FAILS: Final = "fails"


@dataclass(frozen=True, slots=True, order=True)
class Pair:
    """A release of torch, such as "2.15.0", and a Python, such as "3.11"."""

    release: str
    python: str


@dataclass(frozen=True, slots=True)
class Record:
    """What became of one test, named as pytest names it, or one pattern: a word from above."""

    pair: Pair
    test: str
    outcome: str
    seconds: float = 0.0


def running() -> Pair:
    """Return the pair that this process is."""
    release = importlib.metadata.version("torch").partition("+")[0]
    return Pair(release, "{}.{}".format(*sys.version_info))


def read(path: Path) -> dict[tuple[Pair, str], Record]:
    """Return the records of a file by pair and test, the last one of each."""
    if not path.exists():
        return {}
    found = map(_of_line, path.read_text(encoding="utf-8").splitlines())
    return {(each.pair, each.test): each for each in found}


def append(path: Path, records: Iterable[Record]) -> None:
    """Add records to a file at once."""
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(_lines(records)))


def _lines(records: Iterable[Record]) -> Iterator[str]:
    for each in records:
        row = asdict(each)
        yield json.dumps({**row.pop("pair"), **row}) + "\n"


def _of_line(line: str) -> Record:
    row = json.loads(line)
    return Record(Pair(row.pop("release"), row.pop("python")), **row)
