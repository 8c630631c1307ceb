"""The page of a report: the verdict, what still breaks the graph, what was mended, how."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from bcmend.reports import outcomes, page
from bcmend.reports.advice import advice_for, advice_without_a_site, meaning_of
from bcmend.reports.bytecode_pair import CodePair, CodeRow, by_line
from bcmend.reports.outcomes import Retrace, SiteRecord, counted, times
from bcmend.reports.page import Entry, Group, Said
from bcmend.reports.places import shown_path, shown_place, source_line
from bcmend.reports.source import excerpt


def left_and_mended(
    stops: Sequence[Retrace],
    without_a_site: Sequence[Retrace],
    sites: Sequence[SiteRecord],
    *,
    is_whole: bool,
) -> dict[str, object]:
    """Return what the template shows of the sites, and of stops at none.

    Args:
        stops: where graphs break, and no site is.
        without_a_site: where they break no more, and no site is.
        sites: all sites.
        is_whole: whether no graph breaks, whatever became of the sites.
    """
    statuses: dict[str, list[SiteRecord]] = {}
    for each in sites:
        statuses.setdefault(each.status, []).append(each)
    not_mended = [*statuses.get("refused", ()), *statuses.get("withdrawn", ())]
    broken = [] if is_whole else _by_reason(not_mended)
    left = [*_plain([_stop(each, "breaks") for each in stops]), *broken]
    known = [_stop(each, "known") for each in without_a_site]
    known += map(_site, statuses.get("known", ()))
    mended = [*_plain(known), *_by_file(statuses.get("mended", ()))]
    return {
        "tone": "bad" if left else "good" if mended else "",
        "left": left,
        "mended": mended,
        "not_mended": _by_reason(not_mended) if is_whole else [],
        "not_mended_title": page.NOT_MENDED,
        "planned": _by_file(statuses.get("planned", ())),
        "others": _by_file([each for each in sites if each.status not in page.NAMES]),
    }


def retraced(retraces: Sequence[Retrace]) -> dict[str, object]:
    """Return what the template shows of the traces after which code was traced again."""
    return {
        "retraced_title": outcomes.retraced(retraces),
        "retraced": [
            (shown_place(each.file, each.line), each.function, each.reason + times(count))
            for each, count in counted(retraces)
        ],
    }


def bytecode(pairs: Sequence[CodePair]) -> dict[str, object]:
    """Return what the template shows of functions before and after."""
    return {"bytecode": list(map(_pair, pairs))}


def _plain(entries: Sequence[Entry]) -> list[Group]:
    return [Group("", entries)] if entries else []


def _by_reason(sites: Sequence[SiteRecord]) -> list[Group]:
    """Return sites that are not mended in groups of one reason and one advice."""
    groups: dict[tuple[str, str, str], list[SiteRecord]] = {}
    for site in sites:
        slug = site.refusal or "no reason"
        meaning = meaning_of(slug, site.detail)
        hint = advice_for(slug, site.detail, site.file, site.kind)
        groups.setdefault((slug, meaning, hint), []).append(site)
    is_open = page.is_short(sites)
    return [
        Group(slug, list(map(_site, members)), meaning, hint, is_open)
        for (slug, meaning, hint), members in groups.items()
    ]


def _by_file(sites: Sequence[SiteRecord]) -> list[Group]:
    """Return sites in groups of one file."""
    groups: dict[str, list[SiteRecord]] = {}
    for site in sites:
        groups.setdefault(shown_path(site.file), []).append(site)
    is_open = page.is_short(sites)
    return [
        Group(file, list(map(_site, members)), is_open=is_open) for file, members in groups.items()
    ]


#: What is said of a site in front of the detail.
_PREFIXES: Final = {
    "known": page.named("known"),
    "withdrawn": "mended at first, then switched off",
}


def _site(site: SiteRecord) -> Entry:
    first_line, _, more = site.detail.strip().partition("\n")
    why = ": ".join(filter(None, (site.lowering, first_line, site.cost)))
    said = why or site.refusal or page.named(site.status)
    if site.status in _PREFIXES:
        said = ": ".join(filter(None, (_PREFIXES[site.status], why)))
    return Entry(
        shown_place(site.file, site.line),
        site.function,
        site.kind,
        excerpt(site.file, site.line, [site.span]),
        [Said(site.status, said, site.name)],
        more=more,
    )


def _stop(stop: Retrace, status: str) -> Entry:
    return Entry(
        shown_place(stop.file, stop.line),
        stop.function,
        "",
        excerpt(stop.file, stop.line, [stop.span]),
        [Said(status, f"{page.named(status)}: {stop.reason.removeprefix('bcmend: ')}")],
        [advice_without_a_site(stop.file)] if status == "breaks" else [],
    )


class _Pair(NamedTuple):
    """A function before and after, as the template shows it."""

    title: str
    place: str
    counts: str
    lines: list[tuple[str, list[CodeRow]]]


def _pair(pair: CodePair) -> _Pair:
    place = shown_place(pair.file, pair.line)
    return _Pair(pair.title, place, pair.counts, list(_lines(pair.file, by_line(pair.rows))))


def _lines(
    file: str, runs: Iterable[tuple[int | None, list[CodeRow]]]
) -> Iterator[tuple[str, list[CodeRow]]]:
    for line, rows in runs:
        number = "" if line is None else f"{line:>4}  "
        yield number + source_line(file, line), rows
