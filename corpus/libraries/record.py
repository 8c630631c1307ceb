"""What became of one function or module of a library, as a line of a file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

#: A call that stays in pieces takes too long where it takes so many times what stock takes, and so
#: many seconds more.
SLOWER: Final = (3.0, 3.0)


class Outcome(StrEnum):
    """What became of a case."""

    MENDED = "one graph and equal"
    BREAKS = "still breaks"
    DIFFERS = "differs"
    WHOLE = "whole with stock"
    NO_CALL = "no call found"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Record:
    """One case.

    Attributes:
        name: the function or class.
        backend: the back end.
        outcome: what became of it.
        how: where the arguments are from.
        why: what differs, what stops the graph, or why nothing was measured.
        breaks: whether stock was found to break.
        stock: why stock breaks, as Dynamo calls it.
        stock_differs: where stock differs from eager execution, or fails.
        refusals: the sites of mended code that were left as they are.
        stock_seconds: the first call of stock.
        seconds: the first call once mended, mending included.
    """

    name: str
    backend: str
    outcome: Outcome
    how: str = ""
    why: str = ""
    breaks: bool = False
    stock: str = ""
    stock_differs: str = ""
    refusals: tuple[str, ...] = ()
    stock_seconds: float = 0.0
    seconds: float = 0.0

    @property
    def key(self) -> tuple[str, str]:
        """What was run."""
        return self.name, self.backend

    @property
    def reason(self) -> str:
        """The reason of the last refusal, else what Dynamo says."""
        return self.refusals[-1].partition(":")[0] if self.refusals else self.why

    @property
    def is_slow(self) -> bool:
        """Return whether a call that stays in pieces takes much longer than with stock."""
        times, more = SLOWER
        limit = max(times * self.stock_seconds, self.stock_seconds + more)
        return self.outcome is Outcome.BREAKS and self.seconds > limit

    def with_(self, **changes: Any) -> Record:
        """Return a record with other values."""
        return replace(self, **changes)


def as_line(record: Record) -> str:
    """Return a record as JSON in one line."""
    return json.dumps(asdict(record))


def of_line(line: str) -> Record:
    """Return the record of a line."""
    row = json.loads(line)
    changed = {"outcome": Outcome(row["outcome"]), "refusals": tuple(row["refusals"])}
    return Record(**(row | changed))


def read_records(path: Path | None) -> list[Record]:
    """Return the records of a file, the last of each case."""
    if path is None or not path.exists():
        return []
    return latest(of_line(line) for line in path.read_text(encoding="utf-8").splitlines() if line)


def latest(records: Iterable[Record]) -> list[Record]:
    """Return the last record of each case."""
    return list({each.key: each for each in records}.values())


def append(path: Path, record: Record) -> None:
    """Add a record to a file at once, so that a run can be cut off anywhere."""
    with path.open("a", encoding="utf-8") as file:
        file.write(as_line(record) + "\n")
