"""Whether a mended object is the original, seen from outside, and where it is not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Final

from bcmend.reports import page
from bcmend.reports.outcomes import SiteRecord
from bcmend.reports.page import Entry, Group, Said
from bcmend.reports.places import short_place, shown_path, shown_place
from bcmend.reports.source import excerpt
from bcmend.reports.texts import aligned, plural
from bcmend.reports.workflow_commands import command


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a mended call shows first what eager execution does not.

    Attributes:
        call: the number of the call, from 1.
        aspect: "exception", "result", "output", "arguments", "state", "globals", "gradients",
            "generators" or "identity".
        where: what leads there, such as ``state.encoder.calls``.
        eager, mended: what is there.
        stock: whether the call differs from eager execution without bcmend too.
        forced: the sides that were forced in this call: of each site its name and the side.
    """

    call: int
    aspect: str
    where: str
    eager: str
    mended: str
    stock: bool
    forced: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SideRecord:
    """One side of a mended branch or check, and whether calls that take it are equal.

    Attributes:
        site: the name of the site.
        side: "true" or "false", as the truth of the condition; of the test of a loop how many turns
            it makes, such as "no turn".
        status: "seen" where the inputs take it, "forced" where a call was made to, "differs" where
            that call shows something else, and "not forced".
        detail: why it was not; else empty.
    """

    site: str
    side: str
    status: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Sides:
    """What was found of the sides of the mended sites.

    Attributes:
        records: each side, in the order of the sites.
        pairs: how many pairs of sides of sites that follow each other were taken in one call; and
            how many there are.
        seconds: how long it took.
        differences: the first of each call that differs.
    """

    records: tuple[SideRecord, ...]
    pairs: tuple[int, int]
    seconds: float
    differences: tuple[Difference, ...] = ()

    @property
    def sites(self) -> int:
        """How many sites have sides."""
        return len({each.site for each in self.records})

    def having(self, status: str) -> list[SideRecord]:
        """Return the sides of a status."""
        return [each for each in self.records if each.status == status]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What comparing calls of an object, eager and mended, has found.

    Attributes:
        subject: the name of the object.
        torch: the version that was used.
        backend: what the mended object was compiled by.
        runs: how many calls were compared.
        train: whether gradients were.
        is_copied: whether the calls were made in copies of the process.
        difference: the first difference; None where there is none.
        sites: what was mended.
        raised: what each call raised in eager execution, in one line; empty where it returned.
        sides: of the sides of what was mended, where that was asked for.
    """

    subject: str
    torch: str
    backend: str
    runs: int
    train: bool
    is_copied: bool
    difference: Difference | None
    sites: tuple[SiteRecord, ...]
    raised: tuple[str, ...] = ()
    sides: Sides | None = None

    @property
    def equal(self) -> bool:
        """Whether there is no difference."""
        return self.difference is None

    @property
    def each_call_raised(self) -> bool:
        """Whether every call raised: mostly its arguments are wrong, and nothing was compared."""
        return bool(self.raised) and all(self.raised)

    def to_dict(self) -> dict[str, object]:
        """Return everything as dictionaries, lists, strings and numbers alone."""
        found: dict[str, object] = json.loads(json.dumps(asdict(self)))
        return {"schema": _SCHEMA, "equal": self.equal, **found}

    def to_json(self, indent: int | None = 2) -> str:
        """Return `to_dict()` as JSON text; `indent` is the number of spaces, None for one line."""
        return json.dumps(self.to_dict(), indent=indent)

    def to_html(self) -> str:
        """Return everything as one HTML page that needs no other file."""
        return page.page(_TEMPLATE, f"bcmend: {self.subject}, torch {self.torch}", **_values(self))

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        title = f"bcmend: {self.subject}, torch {self.torch}"
        return page.fragment(_TEMPLATE, title, **_values(self))

    def to_github(self) -> str:
        """Return an ``::error`` where there is a difference, a ``::notice`` else.

        These are workflow commands, which GitHub shows in the summary of a run.
        """
        title = f"bcmend: {self.subject}"
        return command("notice" if self.equal else "error", str(self), title=title)

    @property
    def sentence(self) -> str:
        """Whether the calls are equal, with how many there were, in one sentence."""
        sites = plural(len(self.sites), "mended site")
        if self.difference is not None:
            return f"differs in call {self.difference.call} of {self.runs}; {sites}"
        if self.each_call_raised:
            return "each call raised the same: nothing else was compared"
        if not self.sites:
            return f"equal in {plural(self.runs, 'call')}: no site was mended, nothing to compare"
        sides = "" if self.sides is None else f", {plural(len(self.sides.records), 'side')}"
        return f"equal in {plural(self.runs, 'call')}; {sites}{sides}"

    def __str__(self) -> str:
        calls = plural(self.runs, "call") + (", with gradients" if self.train else "")
        what = f"{calls}, compiled by {self.backend!r}, torch {self.torch}"
        lines = [] if self.sides is None else list(_lines_of_sides(self.sides, self.sites))
        if self.difference is None:
            first = f"bcmend: {self.subject}: {_without_difference(self, what)}"
            return "\n".join([first, *lines])
        return "\n".join(
            [
                f"bcmend: {self.subject}: differs in {what}",
                *_lines_of(self.difference),
                *lines,
                *_lines_of_sites(self.sites),
            ]
        )


def _without_difference(found: Verdict, what: str) -> str:
    if found.each_call_raised:
        kinds = ", then ".join(dict.fromkeys(found.raised))
        alike = f"so did the mended ones in {what}: nothing else was compared"
        return f"each call raised {kinds}\n  {alike}"
    if not found.sites:
        return f"no site was mended, nothing to compare: equal in {what}"
    return f"equal in {what}; {plural(len(found.sites), 'mended site')}"


_SCHEMA: Final = 1
"""Changes where a name in `to_dict()` gets another meaning, or goes."""


def _lines_of(found: Difference) -> list[str]:
    forced = ", ".join(f"{site} {side}" for site, side in found.forced)
    lines = [
        f"  call {found.call}, {found.aspect}: {found.where}",
        *([f"    forced  {forced}"] if forced else []),
        f"    eager   {found.eager}",
        f"    mended  {found.mended}",
    ]
    if found.stock:
        lines.append("    torch.compile differs from eager execution here without bcmend too")
    return lines


def _place_of(site: SiteRecord) -> str:
    return short_place(site.file, site.line)


def _lines_of_sites(sites: tuple[SiteRecord, ...]) -> list[str]:
    if not sites:
        return ["  no site was mended"]
    rows = [(_place_of(each), each.kind, f"Policy(off=({each.name!r},))") for each in sites]
    return [
        "  mended sites, each with what switches it off",
        *(f"    {row}" for row in aligned(rows)),
    ]


def _sides_said(found: Sides) -> str:
    """Return how many sides have each status, in one line."""
    if not found.records:
        return "no mended site has sides"
    counts = [
        f"{len(found.having(status))} {text}"
        for status, text in _STATUSES.items()
        if found.having(status)
    ]
    if found.differences:
        counts.append(f"{plural(len(found.differences), 'call')} differ")
    elif found.having("seen") or found.having("forced"):
        counts.append("all equal")
    total = f"{plural(found.sites, 'site')}, {plural(len(found.records), 'side')}"
    return f"{total}: {', '.join(counts)}"


def _lines_of_sides(found: Sides, sites: tuple[SiteRecord, ...]) -> Iterator[str]:
    yield f"  {_sides_said(found)}"
    if not found.records:
        return
    taken, pairs = found.pairs
    if pairs:
        yield f"  {taken} of {pairs} pairs of sides of neighbours, in {found.seconds:.0f} s"
    places = {each.name: _place_of(each) for each in sites}
    for status in ("differs", "not forced"):
        rows = [
            (places.get(each.site, each.site), each.side, each.detail)
            for each in found.having(status)
        ]
        yield from (f"    {status}  {row}" for row in aligned(rows))


#: What a side's status is called where sides are counted.
_STATUSES: Final = {
    "seen": "seen by your inputs",
    "forced": "forced",
    "differs": "differ",
    "not forced": "not forced",
}


# The page: the verdict, what differs, the sides, what was mended, how

_TEMPLATE: Final = "verdict.html"


def _values(found: Verdict) -> dict[str, object]:
    places = {each.name: _place_of(each) for each in found.sites}
    records = () if found.sides is None else found.sides.records
    differences = [each for each in (found.difference,) if each is not None]
    if found.sides is not None:
        differences += [each for each in found.sides.differences if each not in differences]
    is_good = found.equal and bool(found.sites) and not found.each_call_raised
    return {
        "verdict": found.sentence,
        "tone": "bad" if differences else "good" if is_good else "",
        "differences": differences,
        "sides": found.sides,
        "sides_said": "" if found.sides is None else _sides_said(found.sides),
        "sides_rows": [
            (places.get(each.site, each.site), each.side, each.status, each.detail)
            for each in sorted(records, key=lambda each: _ORDER.index(each.status))
        ],
        "mended": _by_file(found),
        "facts": [
            ("calls", f"{found.runs}{', with gradients' if found.train else ''}"),
            ("compiled by", repr(found.backend)),
            ("raised", "; ".join(dict.fromkeys(filter(None, found.raised)))),
            ("made in", "copies of the process" if found.is_copied else "this process"),
        ],
    }


#: In which order sides stand on the page.
_ORDER: Final = ("differs", "not forced", "forced", "seen")


def _by_file(found: Verdict) -> list[Group]:
    groups: dict[str, list[SiteRecord]] = {}
    for each in found.sites:
        groups.setdefault(shown_path(each.file), []).append(each)
    is_open = page.is_short(found.sites)
    return [
        Group(file, [_entry(each, found) for each in sites], is_open=is_open)
        for file, sites in groups.items()
    ]


def _entry(site: SiteRecord, found: Verdict) -> Entry:
    policy = f"Policy(off=({site.name!r},))"
    notes = [] if found.equal else [f"Switched off by `{policy}`."]
    said = ": ".join(filter(None, (site.lowering, site.detail.partition("\n")[0])))
    records = () if found.sides is None else found.sides.records
    sides = [f"{each.side} {each.status}" for each in records if each.site == site.name]
    if sides:
        notes.append(f"{plural(len(sides), 'side')}: {', '.join(sides)}.")
    return Entry(
        shown_place(site.file, site.line),
        site.function,
        site.kind,
        excerpt(site.file, site.line, [site.span]),
        [Said(site.status, said, site.name)],
        notes=notes,
    )
