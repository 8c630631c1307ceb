"""What was mended, what was not, and why: records of sites, as text, JSON, HTML or a rich table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from bcmend.reasons import REASONS, Reason
from bcmend.reports import page
from bcmend.reports.advice import advice_for, meaning_of
from bcmend.reports.outcomes import Retrace, SiteRecord, counted, retraced, times
from bcmend.reports.page import NAMES, NOT_MENDED, named
from bcmend.reports.places import shown_path, shown_place
from bcmend.reports.source import excerpt, excerpt_text
from bcmend.reports.texts import aligned, plural, rich_table

if TYPE_CHECKING:
    from rich.table import Table

    from bcmend.reports.bytecode_pair import CodePair

#: What entries of a policy are called that name nothing.
UNMATCHED: Final = "policy entries that match nothing"
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
        is_whole: whether all that was traced was captured in one graph in the end. A site that was
            not mended breaks none then.
        off_because: why bcmend changes nothing in this process; empty if it does.
        waits: whether none was analysed, since Dynamo has not stopped in any.
        retraces: the traces that stopped, each code object's in order, after which the code was
            traced again; the first of an object that waited is that in which Dynamo stopped.
        versions: names and versions of what the report depends on.
        policy: what of the policy is not the default, as it is written; empty where all is.
        packages: installed packages of which functions got new bytecode, with their versions.
        unmatched: entries of the policy that name no site of the object, or no imported module.
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
    off_because: str = ""
    is_whole: bool = False
    unmatched: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "sites", tuple(sorted(self.sites, key=_position)))

    @property
    def mended(self) -> tuple[SiteRecord, ...]:
        """The sites that were rewritten."""
        return tuple(self.having("mended"))

    @property
    def refused(self) -> tuple[SiteRecord, ...]:
        """The sites that were not mended."""
        return tuple(self.having("refused"))

    @property
    def still_breaking(self) -> tuple[Retrace, ...]:
        """The places, each once, at which graphs break since a trace has stopped, unmended.

        Those at the line of a site are left out: the site says what became of it.
        """
        at_sites = {(site.file, site.line) for site in self.sites}
        stops = dict.fromkeys(each for each in self.retraces if each.stays)
        return tuple(each for each in stops if (each.file, each.line) not in at_sites)

    @property
    def mended_without_a_site(self) -> tuple[Retrace, ...]:
        """The places, each once, at which Dynamo stopped before the code was mended, and not since.

        Those at the line of a site are left out, as above.
        """
        elsewhere = {(each.file, each.line) for each in self.retraces if not each.begins}
        elsewhere |= {(site.file, site.line) for site in self.sites if site.status != "planned"}
        stops = dict.fromkeys(each for each in self.retraces if each.begins and not each.stays)
        return tuple(each for each in stops if (each.file, each.line) not in elsewhere)

    @property
    def places_left(self) -> int:
        """How many lines still break the graph."""
        places = {(each.file, each.line) for each in self.still_breaking}
        places |= {(each.file, each.line) for each in self.having("refused", "withdrawn")}
        return 0 if self.is_whole else len(places)

    def having(self, *statuses: str) -> list[SiteRecord]:
        """Return the sites of some statuses."""
        return [each for each in self.sites if each.status in statuses]

    def named(self, status: str) -> str:
        """Return what a reader knows a status of this object's sites as."""
        is_left = status in ("refused", "withdrawn")
        return NOT_MENDED if is_left and self.is_whole else named(status)

    @property
    def verdict(self) -> str:
        """How much was mended, and how much is left, in one sentence."""
        counts, left = self.counts, self.places_left
        known = counts.get("known", 0) + len(self.mended_without_a_site)
        usual = counts["mended"] + counts["planned"]
        others = {each: n for each, n in counts.items() if each not in NAMES}
        parts = [
            f"{plural(counts['mended'], 'site')} mended" * bool(counts["mended"]),
            f"{plural(known, 'place')} mended by what is known" * bool(known),
            f"{plural(counts['planned'], 'site')} planned" * bool(counts["planned"]),
            *(f"{plural(n, 'site')} {each}" for each, n in others.items()),
            f"{plural(left, 'place')} still {'breaks' if left == 1 else 'break'} the graph"
            if left
            else "nothing left" * bool(usual + known),
        ]
        return ", ".join(filter(None, parts)) or "0 sites"

    @property
    def is_off(self) -> bool:
        """Whether bcmend is switched off in this process, or not used with this torch."""
        return bool(self.off_because)

    @property
    def counts(self) -> dict[str, int]:
        """How many sites have each status; the four usual ones always, zero or not."""
        found = Counter(site.status for site in self.sites)
        return {status: found[status] for status in sorted({*_STATUSES, *found})}

    @property
    def summary(self) -> str:
        """The numbers of sites and functions, in one line."""
        if self.is_off:
            return f"bcmend changes nothing in this process: {self.off_because}"
        if self.waits:
            return (
                f"{plural(self.functions_reached, 'function')} reached, none analysed: "
                "Dynamo has not stopped in any (report(obj, ahead=True) analyses them)"
            )
        reached = plural(self.functions_reached, "function")
        return f"{self.verdict}; {reached} reached, {self.functions_changed} changed"

    @property
    def circumstances(self) -> tuple[tuple[str, str], ...]:
        """Versions, policy and the packages that were changed: what each is, and its value."""
        if not self.versions:
            return ()
        return (
            ("versions", ", ".join(" ".join(each) for each in self.versions)),
            ("policy", self.policy or "the default"),
            ("changed packages", ", ".join(self.packages) or "none that is installed"),
            *((UNMATCHED, ", ".join(self.unmatched)) for _ in self.unmatched[:1]),
        )

    def to_dict(self) -> dict[str, object]:
        """Return the report as dictionaries, lists, strings and numbers alone."""
        return {
            "subject": self.subject,
            "functions_reached": self.functions_reached,
            "functions_changed": self.functions_changed,
            "waits": self.waits,
            "is_whole": self.is_whole,
            "is_off": self.is_off,
            "versions": dict(self.versions),
            "policy": self.policy,
            "packages": list(self.packages),
            "unmatched": list(self.unmatched),
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
        return page.page("report.html", f"bcmend: {self.subject}", **self._values())

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return page.fragment("report.html", f"bcmend: {self.subject}", **self._values())

    def _values(self) -> dict[str, object]:
        from bcmend.reports import site_page  # which few need

        is_silent = self.waits or self.is_off
        reached = f"{self.functions_reached} reached, {self.functions_changed} changed"
        return {
            "verdict": self.summary if is_silent else self.verdict,
            "facts": [*self.circumstances, ("functions", reached)],
            **site_page.left_and_mended(
                self.still_breaking, self.mended_without_a_site, self.sites, is_whole=self.is_whole
            ),
            **site_page.retraced(self.retraces),
            **site_page.bytecode(self.bytecode),
        }

    def to_text(self, *, every: bool = False) -> str:
        """Return the report as text: what still breaks first, what is mended last.

        Many mended sites are counted by file, unless ``every`` is set.
        """
        lines = [f"bcmend: {self.subject}", self.summary]
        lines += aligned(self.circumstances)
        left = [] if self.is_whole else self.having("refused")
        lines += ["", self.named("refused")] if left or self.still_breaking else []
        lines += [*_stops(self.still_breaking), *_listed(left)]
        if not self.is_whole:
            lines += _reasons(self.sites)
        for status in self._order():
            found = self.having(status)
            if status == "known" and self.mended_without_a_site:
                lines += ["", named(status), *_stops(self.mended_without_a_site), *_listed(found)]
            elif found and found != left:
                folds = status == "mended" and not every and len(found) > _LISTED
                lines += ["", self.named(status) + ", by file" * folds]
                lines += _by_file(found) if folds else _listed(found)
        lines += _retraced(self.retraces)
        lines += [text for pair in self.bytecode for text in ("", str(pair))]
        return "\n".join(lines)

    def _order(self) -> list[str]:
        """Return the statuses in the order of a report: what breaks no graph, though left, last."""
        found = [*NAMES, *(each for each in self.counts if each not in NAMES)]
        return sorted(found, key=lambda each: self.is_whole and each in ("refused", "withdrawn"))

    def __str__(self) -> str:
        return self.to_text()

    def __rich__(self) -> Table:
        hints = [f"{site.refusal}: {hint}" for site, hint in advised(self.sites)]
        about = [": ".join(each) for each in self.circumstances]
        title = "\n".join([f"bcmend: {self.subject}", self.summary, *about])
        order = self._order()
        ordered = sorted(self.sites, key=lambda site: order.index(site.status))
        rows = [(self.named(site.status), *_cells(site)) for site in ordered]
        stops = list(_stops(self.still_breaking))
        stops = [named("breaks"), *stops] if stops else []
        without = list(_stops(self.mended_without_a_site))
        without = [named("known"), *without] if without else []
        caption = "\n".join([*hints, *stops, *without, *_retraced(self.retraces)])
        return rich_table(title, _COLUMNS, rows, caption)


def _position(site: SiteRecord) -> tuple[str, int, int, str, str]:
    line = -1 if site.line is None else site.line
    return site.file, line, site.offset, site.kind, site.name


def _listed(sites: Sequence[SiteRecord]) -> Iterator[str]:
    """Yield the lines of sites of one status; a line of source where nothing was mended."""
    if not sites:
        return
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
        if site.status != "mended":
            for line in excerpt_text(excerpt(site.file, site.line, [site.span])):
                yield f"    {' ' * max(map(len, lines))}  {line}"


def _by_file(sites: Sequence[SiteRecord]) -> Iterator[str]:
    """Yield a line for each file with mended sites; the report as JSON or HTML has every site."""
    kinds: dict[str, Counter[str]] = {}
    for site in sites:
        kinds.setdefault(shown_path(site.file), Counter())[site.kind] += 1
    for file, found in kinds.items():
        counted = ", ".join(f"{count} {kind}" for kind, count in found.items())
        yield f"  {file}  {plural(found.total(), 'site')}: {counted}"


def _stops(stops: Sequence[Retrace]) -> Iterator[str]:
    """Yield the lines of places at which Dynamo stopped, each with its source."""
    rows = [(shown_place(each.file, each.line), each.function, each.reason) for each in stops]
    for stop, row in zip(stops, aligned(rows), strict=True):
        yield f"  {row}"
        yield from (
            f"    {line}" for line in excerpt_text(excerpt(stop.file, stop.line, [stop.span]))
        )


def _retraced(retraces: tuple[Retrace, ...]) -> list[str]:
    """Return the lines of the text that list where traces have stopped."""
    if not retraces:
        return []
    rows = [
        (shown_place(each.file, each.line), each.function, each.reason + times(count))
        for each, count in counted(retraces)
    ]
    return [
        "",
        retraced(retraces),
        *(f"  {row}" for row in aligned(rows)),
    ]


def _explanation(site: SiteRecord) -> str:
    """Return the lowering or the refusal, the first line of the detail, and the cost."""
    first_line = site.detail.strip().partition("\n")[0]
    return ": ".join(filter(None, (site.lowering, site.refusal, first_line, site.cost)))


def _cells(site: SiteRecord) -> tuple[str, ...]:
    place = shown_place(site.file, site.line)
    return place, site.kind, site.function, _explanation(site)


def line_of(site: SiteRecord) -> str:
    """Return what became of a site, in one line."""
    place, kind, function, why = _cells(site)
    meaning = "" if site.detail else meaning_of(site.refusal or "", "")
    became = ": ".join(filter(None, (named(site.status), why, meaning)))
    return f"{place}, {function}: {kind} {became}"


def advised(sites: Iterable[SiteRecord]) -> list[tuple[SiteRecord, str]]:
    """Return what to do about sites, each advice once, and the first site that it is for."""
    found: dict[tuple[str, str], SiteRecord] = {}
    for site in sites:
        slug = site.refusal or ""
        if hint := advice_for(slug, site.detail, site.file, site.kind):
            found.setdefault((slug, hint), site)
    return [(site, hint) for (_, hint), site in found.items()]


def _reasons(sites: Iterable[SiteRecord]) -> Iterator[str]:
    """Yield the lines that say what each reason means, and what to do."""
    for site, hint in advised(sites):
        slug = site.refusal or ""
        yield from ("", f"{slug}: {meaning_of(slug, site.detail)}", f"  What to do: {hint}")


def _site_dict(site: SiteRecord) -> dict[str, object]:
    fields: dict[str, object] = asdict(site)
    if site.refusal is not None:
        # A slug that is missing from the table must not cost the user the whole report.
        known = REASONS.get(site.refusal, Reason(site.refusal, "", ""))
        fields["refusal"] = asdict(known)
    return fields
