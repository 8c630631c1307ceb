"""What the pages of all reports have in common: one file each, in the reader's colours."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import Final

#: What became of a site, in the order of a page: how it is called there, and what that means.
LEGEND: Final = {
    "breaks": (
        "still breaking",
        "a trace stopped at this line, no site of it was mended, and the graph breaks here since; "
        "breaks behind it are not listed (bcmend.explain lists all)",
    ),
    "withdrawn": ("withdrawn", "mended at first, then switched off: an ordinary graph break"),
    "refused": (
        "left as it was",
        "not mended, for the reason given: a graph break wherever torch breaks the graph here",
    ),
    "planned": ("planned", "code was written for it, which no trace has reached yet"),
    "mended": ("mended", "no graph break any more"),
}


def named(status: str) -> str:
    """Return what a reader knows a status as."""
    return LEGEND[status][0] if status in LEGEND else status


_STYLE: Final = """
:root { color-scheme: light dark; --back: #fff; --text: #1b1f24; --soft: #59626d; --line: #d8dee4;
  --shade: #f5f7f9; --mended: #1a7f37; --planned: #0969da; --refused: #8a5a00; --withdrawn: #c4212d;
  --new: #dff5e4; --gone: #fde4e4 }
@media (prefers-color-scheme: dark) { :root { --back: #14171c; --text: #e3e7ec; --soft: #9aa4b0;
  --line: #323840; --shade: #1c2128; --mended: #57c46f; --planned: #6cb0ff; --refused: #e0a83c;
  --withdrawn: #ff7b72; --new: #16341f; --gone: #43201f } }
* { box-sizing: border-box }
body { background: var(--back); color: var(--text); font: 15px/1.5 system-ui, sans-serif;
  margin: 0 auto; max-width: 70rem; padding: 1.5rem 1rem 4rem }
h1 { font-size: 1.4rem; margin: 0 0 .3rem } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem }
p { margin: .3rem 0 } small, .soft { color: var(--soft); font-size: .87em }
a { color: var(--planned) }
code, pre, .place { font: 13px/1.5 ui-monospace, "DejaVu Sans Mono", monospace }
pre { background: var(--shade); border-radius: 4px; margin: .3rem 0; overflow-x: auto;
  padding: .35rem .6rem }
.place, h1, .why { overflow-wrap: anywhere } .name { user-select: all }
.counts { display: flex; flex-wrap: wrap; gap: .6rem; margin: 1rem 0; padding: 0 }
.counts li { border: 1px solid var(--line); border-top: 3px solid; border-radius: 4px;
  list-style: none; min-width: 7rem; padding: .3rem .8rem }
.counts b { color: var(--text); display: block; font-size: 1.4rem; line-height: 1.2 }
.counts span { color: var(--soft); font-size: .87em }
dl { display: grid; gap: .2rem 1rem; grid-template-columns: 9.5rem 1fr; margin: .5rem 0 }
dt { color: var(--soft) } dd { margin: 0; overflow-wrap: anywhere }
details { border: 1px solid var(--line); border-radius: 6px; margin: .6rem 0 }
summary { background: var(--shade); border-radius: 6px; cursor: pointer; overflow-wrap: anywhere;
  padding: .4rem .8rem }
details > :not(summary) { margin-left: .8rem; margin-right: .8rem }
ul.sites { list-style: none; margin-block: .3rem; padding: 0 }
ul.sites > li { border-top: 1px solid var(--line); padding: .5rem 0 }
ul.sites > li:first-child { border-top: 0 }
article { border-left: 3px solid var(--line); margin: 1.2rem 0; padding: .1rem 0 .1rem 1rem }
h3 { font-size: 1rem; font-weight: 400; margin: 0; overflow-wrap: anywhere }
table { border-collapse: collapse }
th, td { border-bottom: 1px solid var(--line); padding: .3rem 1rem .3rem 0; text-align: left }
.figures td + td, .figures th + th { font-variant-numeric: tabular-nums; text-align: right }
.wide { overflow-x: auto }
.code { font: 12px/1.4 ui-monospace, "DejaVu Sans Mono", monospace; width: 100% }
.code td { border: 0; padding: 0 .5rem; white-space: pre; width: 50% }
.code th { background: var(--shade); font-weight: 400; padding: .15rem .5rem; white-space: pre }
.code .new td:last-child { background: var(--new) }
.code .gone td:first-child { background: var(--gone) }
.head { display: flex; flex-wrap: wrap; gap: 0 1rem; justify-content: space-between }
.mended { color: var(--mended) } .planned { color: var(--planned) }
.refused { color: var(--refused) } .withdrawn, .breaks { color: var(--withdrawn) }
@media (max-width: 45rem) { dl { grid-template-columns: 1fr; gap: 0 } dd { margin-bottom: .4rem }
  .counts li { flex: 1 } }
"""


def page(title: str, body: Iterable[str]) -> str:
    """Return an HTML page that needs no other file; ``body`` is HTML, ``title`` is text."""
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head>",
            f"<body>\n<h1>{escape(title)}</h1>",
            *body,
            "</body></html>\n",
        ]
    )


def coloured(status: str, text: str) -> str:
    """Return a text in the colour of a status."""
    return f'<span class="{escape(status)}">{escape(text)}</span>'


def prose(text: str) -> str:
    """Return a text with what it has between backticks as code."""
    return _CODE.sub(r"<code>\1</code>", escape(text))


_CODE: Final = re.compile(r"`([^`]+)`")


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """Return a list of what is known, of pairs of text; those without a value are left out."""
    pairs = [f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in rows if value]
    return f"<dl>{''.join(pairs)}</dl>" if pairs else ""


def legend(statuses: Iterable[str]) -> str:
    """Return what the statuses mean that a page shows."""
    shown = set(statuses)
    pairs = "".join(
        f'<dt><b class="{status}">{name}</b></dt><dd>{meaning}</dd>'
        for status, (name, meaning) in LEGEND.items()
        if status in shown
    )
    return f'<dl class="legend">{pairs}</dl>' if pairs else ""


def counts(found: Iterable[tuple[str, int]]) -> str:
    """Return how many sites have each status, as boxes."""
    boxes = "".join(
        f'<li class="{status}"><b>{count}</b><span>{LEGEND[status][0]}</span></li>'
        for status, count in found
    )
    return f'<ul class="counts">{boxes}</ul>' if boxes else ""


def group(summary: str, content: Iterable[str], *, is_open: bool) -> str:
    """Return a part of a page that can be folded; all is HTML."""
    state = " open" if is_open else ""
    return f"<details{state}><summary>{summary}</summary>\n" + "\n".join(content) + "</details>"


def written(text: str) -> str:
    """Return a piece of source or of a message as it is written; empty where there is none."""
    return f"<pre>{escape(text)}</pre>" if text else ""
