"""What was mended, what was not, and why: records of sites, as text, JSON, HTML or a rich table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import TYPE_CHECKING, Final

from bcmend.reasons import REASONS, Reason
from bcmend.reports.outcomes import Retrace, SiteRecord, counted, times
from bcmend.reports.page import LEGEND, counts, facts, legend, named, page
from bcmend.reports.places import shown_path, shown_place, source_line
from bcmend.reports.texts import aligned, plural, rich_table

if TYPE_CHECKING:
    from rich.table import Table

    from bcmend.reports.bytecode_pair import CodePair

_STATUSES: Final = ("mended", "planned", "refused", "withdrawn")
_COLUMNS: Final = ("status", "place", "kind", "function", "how or why")

#: Up to how many mended sites the text lists, unless it is to have all.
_LISTED: Final = 30


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was done to one object, with the sites in the order of file and line.

    Attributes:
        subject: the name of the object.
        sites: every site that is known.
        functions_reached: how many Python functions the object can reach.
        functions_changed: how many of them got new bytecode.
        is_off: whether bcmend is switched off in this process, or not used with this torch.
        waits: whether none was analysed, since Dynamo has not stopped in any.
        retraces: the traces that were given up, each code object's in order; the first of an object
            that waited is that in which Dynamo stopped.
        versions: names and versions of what the report depends on.
        policy: what of the policy is not the default, as it is written; empty where all is.
        packages: installed packages of which functions got new bytecode, with their versions.
        bytecode: each function that got new bytecode for its sites, before and after; empty unless
            it was asked for.
    """

    subject: str
    sites: tuple[SiteRecord, ...]
    functions_reached: int
    functions_changed: int
    waits: bool = False
    retraces: tuple[Retrace, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    policy: str = ""
    packages: tuple[str, ...] = ()
    bytecode: tuple[CodePair, ...] = ()
    is_off: bool = False

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

    @property
    def still_breaking(self) -> tuple[Retrace, ...]:
        """The places, each once, at which graphs break since a trace has stopped, unmended.

        Those at the line of a site are left out: the site says what became of it.
        """
        at_sites = {(site.file, site.line) for site in self.sites}
        stops = dict.fromkeys(each for each in self.retraces if each.stays)
        return tuple(each for each in stops if (each.file, each.line) not in at_sites)

    @property
    def counts(self) -> dict[str, int]:
        """How many sites have each status; the four usual ones always, zero or not."""
        found = Counter(site.status for site in self.sites)
        return {status: found[status] for status in sorted({*_STATUSES, *found})}

    @property
    def summary(self) -> str:
        """The numbers of sites and functions, in one line."""
        if self.is_off:
            return "bcmend changes nothing in this process: BCMEND=0 is set, or torch is not tested"
        if self.waits:
            return (
                f"{plural(self.functions_reached, 'function')} reached, none analysed: "
                "Dynamo has not stopped in any (report(obj, ahead=True) analyses them)"
            )
        counts = [f"{count} {named(status)}" for status, count in self.counts.items() if count]
        return (
            f"{plural(len(self.sites), 'site')}{': ' if counts else ''}{', '.join(counts)}; "
            f"{plural(self.functions_reached, 'function')} reached, "
            f"{self.functions_changed} changed"
        )

    @property
    def circumstances(self) -> tuple[tuple[str, str], ...]:
        """Versions, policy and the packages that were changed: what each is, and its value."""
        if not self.versions:
            return ()
        return (
            ("versions", ", ".join(" ".join(each) for each in self.versions)),
            ("policy", self.policy or "the default"),
            ("changed packages", ", ".join(self.packages) or "none that is installed"),
        )

    def to_dict(self) -> dict[str, object]:
        """Return the report as dictionaries, lists, strings and numbers alone."""
        return {
            "subject": self.subject,
            "functions_reached": self.functions_reached,
            "functions_changed": self.functions_changed,
            "waits": self.waits,
            "is_off": self.is_off,
            "versions": dict(self.versions),
            "policy": self.policy,
            "packages": list(self.packages),
            "counts": self.counts,
            "sites": [_site_dict(site) for site in self.sites],
            "retraces": [asdict(retrace) for retrace in self.retraces],
            "bytecode": [asdict(pair) for pair in self.bytecode],
        }

    def to_json(self, indent: int | None = 2) -> str:
        """Return `to_dict()` as JSON text; `indent` is the number of spaces, None for one line."""
        return json.dumps(self.to_dict(), indent=indent)

    def to_html(self) -> str:
        """Return the report as one HTML page that needs no other file."""
        from bcmend.reports import site_page  # which few need

        numbers = {"breaks": len(self.still_breaking), **self.counts}
        shown = {status: numbers[status] for status in [*LEGEND, *numbers] if numbers.get(status)}
        body = [
            f"<p>{escape(self.summary)}</p>",
            counts(shown.items()),
            facts(self.circumstances),
            legend(shown),
            *site_page.stops(self.still_breaking),
            *site_page.sites(self.sites),
            *site_page.given_up(self.retraces),
            *site_page.bytecode(self.bytecode),
        ]
        return page(f"bcmend: {self.subject}", body)

    def to_text(self, *, every: bool = False) -> str:
        """Return the report as text: what still breaks first, what is mended last.

        Many mended sites are counted by file, unless ``every`` is set.
        """
        lines = [f"bcmend: {self.subject}", self.summary]
        lines += aligned(self.circumstances)
        lines += _still_breaking(self.still_breaking)
        for status in [*LEGEND, *(each for each in self.counts if each not in LEGEND)]:
            found = [site for site in self.sites if site.status == status]
            folds = status == "mended" and not every
            lines += _by_file(found) if folds and len(found) > _LISTED else _listed(found)
        lines += _retraced(self.retraces)
        for found_reason in _reasons_given(self.sites):
            lines += ["", f"{found_reason.slug}: {found_reason.meaning}"]
            lines.append(f"  Hint: {found_reason.hint}")
        lines += [text for pair in self.bytecode for text in ("", str(pair))]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.to_text()

    def __rich__(self) -> Table:
        hints = [f"{found.slug}: {found.hint}" for found in _reasons_given(self.sites)]
        about = [": ".join(each) for each in self.circumstances]
        title = "\n".join([f"bcmend: {self.subject}", self.summary, *about])
        order = [*LEGEND, *self.counts]
        rows = map(_cells, sorted(self.sites, key=lambda site: order.index(site.status)))
        stops = _still_breaking(self.still_breaking)
        caption = "\n".join([*hints, *stops, *_retraced(self.retraces)])
        return rich_table(title, _COLUMNS, rows, caption)


def _position(site: SiteRecord) -> tuple[str, int, int, str, str]:
    line = -1 if site.line is None else site.line
    return site.file, line, site.offset, site.kind, site.name


def _listed(sites: Sequence[SiteRecord]) -> Iterator[str]:
    """Yield the lines of sites of one status; a line of source where nothing was mended."""
    if not sites:
        return
    yield from ("", named(sites[0].status))
    lines = ["?" if site.line is None else str(site.line) for site in sites]
    rows = aligned(
        [
            (line, site.kind, site.function, _explanation(site))
            for line, site in zip(lines, sites, strict=True)
        ]
    )
    file = None
    for site, row in zip(sites, rows, strict=True):
        if site.file != file:
            file = site.file
            yield f"  {shown_path(file)}"
        yield f"    {row}"
        if site.status != "mended" and (text := source_line(site.file, site.line)):
            yield f"    {' ' * max(map(len, lines))}  | {text}"


def _by_file(sites: Sequence[SiteRecord]) -> Iterator[str]:
    """Yield a line for each file with mended sites; the report as JSON or HTML has every site."""
    yield from ("", f"{named('mended')}, by file")
    kinds: dict[str, Counter[str]] = {}
    for site in sites:
        kinds.setdefault(shown_path(site.file), Counter())[site.kind] += 1
    for file, found in kinds.items():
        counted = ", ".join(f"{count} {kind}" for kind, count in found.items())
        yield f"  {file}  {plural(found.total(), 'site')}: {counted}"


def _still_breaking(stops: Sequence[Retrace]) -> Iterator[str]:
    if not stops:
        return
    yield from ("", named("breaks"))
    rows = [(shown_place(each.file, each.line), each.function, each.reason) for each in stops]
    for stop, row in zip(stops, aligned(rows), strict=True):
        yield f"  {row}"
        if text := source_line(stop.file, stop.line):
            yield f"    | {text}"


def _retraced(retraces: tuple[Retrace, ...]) -> list[str]:
    """Return the lines of the text that list traces which were given up."""
    if not retraces:
        return []
    rows = [
        (shown_place(each.file, each.line), each.function, each.reason + times(count))
        for each, count in counted(retraces)
    ]
    return [
        "",
        f"{plural(len(retraces), 'trace')} given up",
        *(f"  {row}" for row in aligned(rows)),
    ]


def _explanation(site: SiteRecord) -> str:
    """Return the lowering or the refusal, the first line of the detail, and the cost."""
    first_line = site.detail.strip().partition("\n")[0]
    return ": ".join(filter(None, (site.lowering, site.refusal, first_line, site.cost)))


def _cells(site: SiteRecord) -> tuple[str, ...]:
    place = shown_place(site.file, site.line)
    return named(site.status), place, site.kind, site.function, _explanation(site)


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
