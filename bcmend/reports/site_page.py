"""The parts of the page of a report: what breaks first, what is mended folded behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final

from bcmend.reasons import REASONS
from bcmend.reports import page
from bcmend.reports.bytecode_pair import CodePair, by_line
from bcmend.reports.outcomes import Retrace, SiteRecord, counted, times
from bcmend.reports.places import shown_path, shown_place, source_line

#: Up to how many sites of one status are shown unfolded.
_UNFOLDED: Final = 25


def stops(found: Sequence[Retrace]) -> Iterator[str]:
    """Yield the places at which graphs break since a trace has stopped."""
    if found:
        yield _heading("breaks")
        yield _list(map(_break, found))


def sites(found: Sequence[SiteRecord]) -> Iterator[str]:
    """Yield the sites: for each status a heading, and groups that can be folded."""
    if found:
        yield "<p class=soft>In small print: the name of a site, as Policy(off=...) takes it.</p>"
    by_status: dict[str, list[SiteRecord]] = {status: [] for status in page.LEGEND}
    for site in found:
        by_status.setdefault(site.status, []).append(site)
    for status, members in by_status.items():
        if members:
            yield _heading(status)
            yield from _groups(members, status)


def _heading(status: str) -> str:
    return f'<h2 class="{escape(status)}">{escape(page.named(status).capitalize())}</h2>'


def _list(entries: Iterable[str]) -> str:
    return '<ul class="sites">' + "\n".join(f"<li>{each}</li>" for each in entries) + "</ul>"


def _groups(sites: Sequence[SiteRecord], status: str) -> Iterator[str]:
    """Yield groups of sites: of one reason where they have reasons, else of one file."""
    is_open = len(sites) <= _UNFOLDED
    has_reason = status not in ("mended", "planned")
    groups: dict[str, list[SiteRecord]] = {}
    for site in sites:
        common = (site.refusal or "no reason") if has_reason else shown_path(site.file)
        groups.setdefault(common, []).append(site)
    for common, members in groups.items():
        title = f'<b>{escape(common)}</b> <span class="soft">{len(members)}</span>'
        reason = REASONS.get(common) if has_reason else None
        hint = []
        if reason is not None:
            title += f"<br>{page.prose(reason.meaning)}"
            hint = [f'<p class="soft">What to do: {page.prose(reason.hint)}</p>']
        yield page.group(title, [*hint, _list(map(_site, members))], is_open=is_open)


def _site(site: SiteRecord) -> str:
    first_line, _, more = site.detail.strip().partition("\n")
    why = ": ".join(filter(None, (site.lowering, first_line, site.cost)))
    return "".join(
        [
            _head(
                site, f"{escape(site.kind)} in ", f'<small class="name">{escape(site.name)}</small>'
            ),
            f'<p class="why">{page.coloured(site.status, why)}</p>' if why else "",
            page.written(more),
        ]
    )


def _break(stop: Retrace) -> str:
    return f'{_head(stop, "in ")}<p class="why">{page.coloured("breaks", stop.reason)}</p>'


def _head(found: SiteRecord | Retrace, kind: str, name: str = "") -> str:
    """Return place and function in one line, and the line of source below it."""
    place = escape(shown_place(found.file, found.line))
    where = f'<span class="place">{place}</span> {kind}<code>{escape(found.function)}</code>'
    source = page.written(source_line(found.file, found.line))
    return f'<div class="head"><span>{where}</span>{name}</div>{source}'


def given_up(retraces: Sequence[Retrace]) -> Iterator[str]:
    """Yield the traces that were given up, folded."""
    if not retraces:
        return
    count = f"{len(retraces)} trace{'s' * (len(retraces) > 1)} given up"
    rows = "".join(
        f'<tr><td class="place">{escape(shown_place(each.file, each.line))}</td>'
        f"<td><code>{escape(each.function)}</code></td>"
        f"<td>{escape(each.reason + times(count))}</td></tr>"
        for each, count in counted(retraces)
    )
    explained = (
        "<p class=soft>After each of them the code was traced again, or the call was made in plain "
        "Python. Only time was lost; bcmend.why says what each has led to.</p>"
    )
    yield page.group(
        count, [explained, f'<div class="wide"><table>{rows}</table></div>'], is_open=False
    )


def bytecode(pairs: Sequence[CodePair]) -> Iterator[str]:
    """Yield functions before and after, each folded."""
    if pairs:
        yield "<h2>Bytecode, before and after</h2>"
        yield from map(_pair, pairs)


def _pair(pair: CodePair) -> str:
    parts = ["<table class=code><tr><th>before</th><th>after</th></tr>"]
    for line, rows in by_line(pair.rows):
        number = "" if line is None else f"{line:>4}  "
        text = escape(number + source_line(pair.file, line))
        parts.append(f"<tr><th colspan=2>{text}</th></tr>")
        parts += [_CODE_ROW[row.mark].format(escape(row.before), escape(row.after)) for row in rows]
    title = f"<b>{escape(pair.title)}</b> <span class=place>"
    title += f"{escape(shown_place(pair.file, pair.line))}</span> <small>{pair.counts}</small>"
    content = ["<div class=wide>", *parts, "</table></div>"]
    return page.group(title, content, is_open=False)


_CODE_ROW: Final = {
    " ": "<tr><td>{}</td><td>{}</td></tr>",
    "+": "<tr class=new><td>{}</td><td>{}</td></tr>",
    "-": "<tr class=gone><td>{}</td><td>{}</td></tr>",
}
