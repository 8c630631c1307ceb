"""What a scan has found: sites and what could not be read, as text, JSON or a rich table."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from bcmend.reports.texts import aligned, plural, rich_table

if TYPE_CHECKING:
    from rich.table import Table

_COLUMNS: Final = ("where", "function", "kind", "status", "how or why")
_LONGEST: Final = 200  # characters of what an error says


class UnreadableFile(Exception):
    """A file cannot be read; the message is one line."""


@dataclass(frozen=True, slots=True)
class FoundSite:
    """One place at which `torch.compile` may stop.

    Attributes:
        file, line, function: where it is; the line is None where the code has none.
        kind: "branch", "guard" or "output"; a candidate that jumps is a "branch".
        status: "planned", "refused", or "candidate" for code of another Python.
        lowering: what it is to become, "branch", "guard", "output", or "truth" for a jump that
            stays, on a constant where its truth is known; None where it is not planned.
        refusal: the slug of the reason why it is not mended; None where there is none.
        detail: anything more that is known of this very site.
        python: the version of the Python whose code this is, such as "3.12".
    """

    file: str
    line: int | None
    function: str
    kind: str
    status: str
    lowering: str | None
    refusal: str | None
    detail: str
    python: str


@dataclass(frozen=True, slots=True)
class Scan:
    """What was found: how many files were examined, and their sites, in the order of lines.

    ``unread`` counts those of the files that could not be read. ``warnings`` has one line for each
    of these, and for each function or folder that could not.
    """

    files: int
    sites: tuple[FoundSite, ...]
    warnings: tuple[str, ...]
    unread: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether there was something to read, and all of it could be read."""
        return self.files > 0 and not self.warnings

    def to_json(self, indent: int | None = 2) -> str:
        """Return everything as JSON text; `indent` is the number of spaces, None for one line."""
        return json.dumps(asdict(self), indent=indent)

    def __str__(self) -> str:
        return "\n".join([*aligned(list(map(_cells, self.sites))), _summary(self)])

    def __rich__(self) -> Table:
        return rich_table(_summary(self), _COLUMNS, map(_cells, self.sites))


def _cells(site: FoundSite) -> tuple[str, ...]:
    where = site.file if site.line is None else f"{site.file}:{site.line}"
    lowering = None if site.lowering == site.kind else site.lowering
    why = ": ".join(filter(None, (lowering, site.refusal, site.detail)))
    return tuple(map(printable, (where, site.function, site.kind, site.status, why)))


def _summary(found: Scan) -> str:
    counts = Counter(site.status for site in found.sites)
    unread = f"; {plural(found.unread, 'file')} could not be read" if found.unread else ""
    by_status = ", ".join(f"{counts[status]} {status}" for status in sorted(counts))
    return (
        f"{plural(len(found.sites), 'site')} in {plural(found.files, 'file')}"
        f"{': ' if by_status else ''}{by_status}"
        f"{unread}"
    )


def printable(text: str) -> str:
    """Return a text that any terminal can show in one line: names in broken files have anything."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def one_line(error: BaseException) -> str:
    """Return what an error says, or its type where it says nothing, in one short line."""
    text = printable(" ".join(str(error).split())) or type(error).__name__
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
