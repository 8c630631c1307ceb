"""What became of one architecture in one mode, as a line of a file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from corpus import lines
from corpus.transformers5.measure import Measurement

#: Outcomes: measured; without a small model or arguments; without a result of eager execution;
#: ended by a limit or a crash.
MEASURED: Final = "measured"
NOT_BUILT: Final = "not built"
NO_REFERENCE: Final = "no reference"
STOPPED: Final = "stopped"


@dataclass(frozen=True, slots=True)
class Record:
    """One row: ``model`` is the class; ``why`` tells an outcome that is no measurement."""

    name: str
    mode: str
    backend: str
    fullgraph: bool
    outcome: str
    model: str = ""
    why: str = ""
    measurement: Measurement | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """What was run: a later record of the same key replaces an earlier one."""
        return self.name, self.mode, self.backend

    @property
    def breaks_with_stock(self) -> bool:
        """Return whether stock takes more or less than one graph, or fails."""
        found = self.measurement
        return found is not None and (found.stock_graphs != 1 or found.stock_error is not None)

    @property
    def is_whole(self) -> bool:
        """Return whether the mended model is one graph, equal to eager execution."""
        return self.measurement is not None and self.measurement.is_whole

    @property
    def differs(self) -> bool:
        """Return whether the mended model shows other results than eager execution."""
        return self.measurement is not None and bool(self.measurement.differences)

    @property
    def obstacle(self) -> str:
        """What stands in the way, in one line; empty where nothing does."""
        found = self.measurement
        if found is None:
            return f"{self.outcome}: {self.why}"
        return found.error or next(iter(found.differences), "")


def of_line(line: str) -> Record:
    """Return the record of a line."""
    row: dict[str, Any] = json.loads(line)
    found = row.pop("measurement")
    if found is not None:
        lists = {name: tuple(value) for name, value in found.items() if isinstance(value, list)}
        found = Measurement(**(found | lists))
    return Record(**row, measurement=found)


def read_records(path: Path | None) -> list[Record]:
    """Return the records of a file, the last of each key, in the order of their first lines."""
    return lines.read(path, of_line)
