"""What became of one function or module of a library, as a line of a file."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from corpus import lines

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


def of_line(line: str) -> Record:
    """Return the record of a line."""
    row = json.loads(line)
    changed = {"outcome": Outcome(row["outcome"]), "refusals": tuple(row["refusals"])}
    return Record(**(row | changed))


def read_records(path: Path | None) -> list[Record]:
    """Return the records of a file, the last of each case."""
    return lines.read(path, of_line)
