"""What was mended, what was not, and why: records of sites, as text, JSON, HTML or a rich table."""

from __future__ import annotations

import html
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bcmend.reasons import REASONS, Reason

if TYPE_CHECKING:
    from rich.table import Table

_STATUSES: Final = ("mended", "planned", "refused", "withdrawn")
_COLORS: Final = {"mended": "green", "planned": "cyan", "refused": "yellow", "withdrawn": "red"}
_COLUMNS: Final = ("status", "kind", "line", "function", "how or why")
_HTML_COLUMNS: Final = ("where", "status", "kind", "function", "how or why")

_HTML_STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem }
table { border-collapse: collapse; width: 100% }
th, td { border-bottom: 1px solid #8884; padding: .35rem .6rem; text-align: left;
         vertical-align: top }
.mended { color: #1a7f37 } .planned { color: #0969da }
.refused { color: #9a6700 } .withdrawn { color: #cf222e }
small { opacity: .75 }
"""


@dataclass(frozen=True, slots=True)
class SiteRecord:
    """One place in the program where a graph break was found, and what became of it.

    Attributes:
        name: the name by which a policy can switch the site off.
        file: the source file that the code object names.
        line: the source line, or None where the code object has none.
        function: the qualified name of the function.
        offset: the offset of the site's instruction in the original bytecode, in bytes.
        kind: "branch", "loop", "guard", "output" or another kind of site.
        status: "mended", "refused", "withdrawn" or "planned".
        lowering: what the site was rewritten to; None where it was not rewritten.
        refusal: the slug of the reason why it was not rewritten; None where it was.
        detail: anything more that is known of this very site, such as a compiler's message.
        clone_bytes: of deferred output and checks, how many bytes of tensors each call copies
            because they are changed later in it; None for other sites, or where it is not known.
    """

    name: str
    file: str
    line: int | None
    function: str
    offset: int
    kind: str
    status: str
    lowering: str | None
    refusal: str | None
    detail: str = ""
    clone_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Retrace:
    """One trace that was given up, whereupon the code was traced again or run in plain Python.

    Attributes:
        file: the source file of the function in which it stopped.
        line: the source line, or None where it is not known.
        function: the qualified name of the function.
        reason: what Dynamo or bcmend says of it, in one line.
    """

    file: str
    line: int | None
    function: str
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was done to one object, with the sites in the order of file and line.

    ``functions_reached`` counts the Python functions that it can reach, ``functions_changed`` those
    of them that got new bytecode. ``waits`` says that none was analysed, since Dynamo has not
    stopped in any. ``retraces`` lists the traces that were given up, each code object's in order;
    the first of an object that waited is that in which Dynamo stopped.
    """

    subject: str
    sites: tuple[SiteRecord, ...]
    functions_reached: int
    functions_changed: int
    waits: bool = False
    retraces: tuple[Retrace, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "sites", tuple(sorted(self.sites, key=_position)))

    @property
    def mended(self) -> tuple[SiteRecord, ...]:
        """The sites that were rewritten."""
        return tuple(site for site in self.sites if site.status == "mended")

    @property
    def refused(self) -> tuple[SiteRecord, ...]:
        """The sites that were left as they were."""
        return tuple(site for site in self.sites if site.status == "refused")

    def to_dict(self) -> dict[str, object]:
        """Return the report as dictionaries, lists, strings and numbers alone."""
        return {
            "subject": self.subject,
            "functions_reached": self.functions_reached,
            "functions_changed": self.functions_changed,
            "waits": self.waits,
            "counts": _counts(self.sites),
            "sites": [_site_dict(site) for site in self.sites],
            "retraces": [asdict(retrace) for retrace in self.retraces],
        }

    def to_json(self, indent: int | None = 2) -> str:
        """Return `to_dict()` as JSON text; `indent` is the number of spaces, None for one line."""
        return json.dumps(self.to_dict(), indent=indent)

    def to_html(self) -> str:
        """Return the report as one HTML page that needs no other file."""
        title = html.escape(f"bcmend: {self.subject}")
        head = "".join(f"<th>{column}</th>" for column in _HTML_COLUMNS)
        rows = "\n".join(_html_row(site) for site in self.sites)
        retraced = "\n".join(_retraced(self.retraces)).strip()
        table = f"<table><thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody></table>"
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f"<title>{title}</title><style>{_HTML_STYLE}</style></head>\n<body>"
            f"<h1>{title}</h1>\n<p>{html.escape(_summary(self))}</p>\n"
            f"{table if self.sites else ''}"
            f"{retraced and f'<pre>{html.escape(retraced)}</pre>'}</body></html>\n"
        )

    def __str__(self) -> str:
        lines = [f"bcmend: {self.subject}", _summary(self)]
        _, *rows = aligned([_COLUMNS, *map(_cells, self.sites)])
        previous_file: str | None = None
        for site, row in zip(self.sites, rows, strict=True):
            if site.file != previous_file:
                lines += ["", site.file]
                previous_file = site.file
            lines.append(f"  {row}")
        lines += _retraced(self.retraces)
        for found in _reasons_given(self.sites):
            lines += ["", f"{found.slug}: {found.meaning}", f"  Hint: {found.hint}"]
        return "\n".join(lines)

    def __rich__(self) -> Table:
        hints = [f"{found.slug}: {found.hint}" for found in _reasons_given(self.sites)]
        title = f"bcmend: {self.subject}\n{_summary(self)}"
        rows = ((*_cells(site), site.file) for site in self.sites)
        caption = "\n".join([*hints, *_retraced(self.retraces)])
        return rich_table(title, (*_COLUMNS, "file"), rows, caption)


def _position(site: SiteRecord) -> tuple[str, int, int, str, str]:
    line = -1 if site.line is None else site.line
    return site.file, line, site.offset, site.kind, site.name


def _counts(sites: tuple[SiteRecord, ...]) -> dict[str, int]:
    """Return how many sites have each status; the four usual ones always, zero or not."""
    found = Counter(site.status for site in sites)
    return {status: found[status] for status in sorted({*_STATUSES, *found})}


def _summary(report: Report) -> str:
    if report.waits:
        return (
            f"{plural(report.functions_reached, 'function')} reached, none analysed: "
            "Dynamo has not stopped in any (report(obj, ahead=True) analyses them)"
        )
    counts = [f"{count} {status}" for status, count in _counts(report.sites).items() if count]
    return (
        f"{plural(len(report.sites), 'site')}{': ' if counts else ''}{', '.join(counts)}; "
        f"{plural(report.functions_reached, 'function')} reached, "
        f"{report.functions_changed} changed"
    )


def _retraced(retraces: tuple[Retrace, ...]) -> list[str]:
    """Return the lines of the text that list traces which were given up."""
    if not retraces:
        return []
    places = (Path(each.file).name for each in retraces)
    rows = [
        (f"{place}:{'?' if each.line is None else each.line}", each.function, each.reason)
        for place, each in zip(places, retraces, strict=True)
    ]
    return [
        "",
        f"{plural(len(retraces), 'trace')} given up",
        *(f"  {row}" for row in aligned(rows)),
    ]


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return ``rows`` as lines with aligned columns; the last column is free to run on."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    return ["  ".join([*map(str.ljust, row, widths), row[-1]]).rstrip() for row in rows]


def rich_table(
    title: str, columns: Iterable[str], rows: Iterable[Sequence[str]], caption: str = ""
) -> Table:
    """Return a table for a terminal; a status in the first column has its colour."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), caption=Text(caption), caption_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for first, *others in rows:
        table.add_row(Text(first, style=_COLORS.get(first, "")), *map(Text, others))
    return table


def _explanation(site: SiteRecord) -> str:
    """Return the lowering or the refusal, the first line of the detail, and the cost."""
    first_line = site.detail.strip().partition("\n")[0]
    return ": ".join(filter(None, (site.lowering, site.refusal, first_line, _cost(site))))


def _cost(site: SiteRecord) -> str:
    """Say what is copied; empty if nothing is."""
    return f"copies {plural(site.clone_bytes, 'byte')} of tensors" if site.clone_bytes else ""


def _cells(site: SiteRecord) -> tuple[str, ...]:
    line = "?" if site.line is None else str(site.line)
    return site.status, site.kind, line, site.function, _explanation(site)


def _reasons_given(sites: tuple[SiteRecord, ...]) -> list[Reason]:
    """Return each reason that a site names, once, in the order of first use."""
    slugs = dict.fromkeys(site.refusal for site in sites if site.refusal is not None)
    return [REASONS[slug] for slug in slugs if slug in REASONS]


def _site_dict(site: SiteRecord) -> dict[str, object]:
    fields: dict[str, object] = asdict(site)
    if site.refusal is not None:
        # A slug that is missing from the table must not cost the user the whole report.
        known = REASONS.get(site.refusal, Reason(site.refusal, "", ""))
        fields["refusal"] = asdict(known)
    return fields


def _html_row(site: SiteRecord) -> str:
    line = "" if site.line is None else f":{site.line}"
    why = html.escape(" ".join(filter(None, (site.lowering, site.refusal))))
    why += f"<br>{_cost(site)}" if site.clone_bytes else ""
    found = None if site.refusal is None else REASONS.get(site.refusal)
    if found is not None:
        why += f"<br>{html.escape(found.meaning)}<br><small>{html.escape(found.hint)}</small>"
    if site.detail:
        why += f"<pre>{html.escape(site.detail)}</pre>"
    where = f"{html.escape(site.file)}{line}<br><small>{html.escape(site.name)}</small>"
    status = html.escape(site.status)
    cells = (
        where,
        f'<span class="{status}">{status}</span>',
        html.escape(site.kind),
        html.escape(site.function),
        why,
    )
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
