"""What `torch.compile` makes of an object, stock and mended side by side, as text, JSON or HTML."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Final

from bcmend.reports.site_report import aligned, plural


@dataclass(frozen=True, slots=True)
class Side:
    """What compiling has given, without bcmend or with it.

    Attributes:
        graphs: how many graphs a first call has compiled.
        breaks: how many graph breaks it has had.
        operators: how many operators are in the graphs.
        share: of the operators that a later call runs, the share that it runs in graphs; None where
            it runs none.
        recompiled: how many graphs a second call of the same arguments has compiled.
        first, later: seconds of a first and of a later call, as ratios to a later one in eager
            execution.
        raised: what the first call has raised, in one line; empty where it has returned.
    """

    graphs: int
    breaks: int
    operators: int
    share: float | None
    recompiled: int
    first: float
    later: float
    raised: str


@dataclass(frozen=True, slots=True)
class Treatment:
    """What bcmend has made of a site at the line of a graph break.

    Attributes:
        site: its name, which `Policy(off=...)` takes.
        kind: "branch", "loop", "guard", "output" or another kind of site.
        status: "mended", "refused", "withdrawn" or "planned".
        how: the lowering with its reason, or the slug of the refusal with what is known of it.
        hint: what to do about a refusal; empty for others.
    """

    site: str
    kind: str
    status: str
    how: str
    hint: str


@dataclass(frozen=True, slots=True)
class Cause:
    """A place in the program that breaks graphs, and what bcmend has made of it.

    Attributes:
        file, line, function, source: the place, and the line as it is written.
        modules: the paths of the submodules in which it has broken graphs; "" is the object itself.
        kind: what Dynamo calls it.
        number: that of torch's registry of graph breaks, such as "GB0170"; empty where it has none.
        explanation: Dynamo's, in one line; empty where it gives none.
        stock, mended: how many graph breaks of the first call are here.
        treatments: the sites at this line.
    """

    file: str
    line: int | None
    function: str
    source: str
    modules: tuple[str, ...]
    kind: str
    number: str
    explanation: str
    stock: int
    mended: int
    treatments: tuple[Treatment, ...]

    @property
    def outcome(self) -> str:
        """What has become of it, in a few words, where no site says it."""
        if self.mended:
            return "stays a graph break: bcmend mends nothing of this kind here"
        return "no graph break once the others are mended"


@dataclass(frozen=True, slots=True)
class Explanation:
    """An object beside itself mended, with the causes in the order in which a call met them.

    Attributes:
        subject: the name of the object.
        torch: the version that was used.
        backend: what the timed calls were compiled by. Graphs are counted without one.
        is_copied: whether the calls were made in copies of the process.
        eager_seconds: what a later call takes in eager execution.
        eager_raised: what it raises, in one line; empty where it returns.
        stock, mended: what compiling has given.
        causes: where graphs broke, in either.
    """

    subject: str
    torch: str
    backend: str
    is_copied: bool
    eager_seconds: float
    eager_raised: str
    stock: Side
    mended: Side
    causes: tuple[Cause, ...]

    def to_dict(self) -> dict[str, object]:
        """Return everything as dictionaries, lists, strings and numbers alone."""
        found: dict[str, object] = json.loads(json.dumps(asdict(self)))
        return {"schema": _SCHEMA, **found}

    def to_json(self, indent: int | None = 2) -> str:
        """Return `to_dict()` as JSON text; `indent` is the number of spaces, None for one line."""
        return json.dumps(self.to_dict(), indent=indent)

    def to_html(self) -> str:
        """Return everything as one HTML page that needs no other file."""
        return _page(self)

    def __str__(self) -> str:
        lines = [f"bcmend: {self.subject}, torch {self.torch}"]
        for number, cause in enumerate(self.causes, 1):
            lines += ["", *_lines_of(number, cause)]
        if not self.causes:
            lines += ["", "torch captures it in one piece: there is nothing to mend"]
        table = aligned([("", "stock", "mended"), *_figures(self)])
        return "\n".join([*lines, "", *table, *_notes(self)])


_SCHEMA: Final = 1
"""Changes where a name in `to_dict()` gets another meaning, or goes."""


def _figures(found: Explanation) -> Iterator[tuple[str, str, str]]:
    """Yield the rows of the table: what it is, stock, mended."""
    sides = found.stock, found.mended
    for label, texts in (
        ("graphs", [f"{side.graphs}" for side in sides]),
        ("graph breaks", [f"{side.breaks}" for side in sides]),
        ("operators captured", [f"{side.operators}" for side in sides]),
        ("operators inside graphs", [_percent(side.share) for side in sides]),
        ("graphs of a second call", [f"{side.recompiled}" for side in sides]),
        ("first call / eager call", [f"{side.first:.3g}" for side in sides]),
        ("later call / eager call", [f"{side.later:.3g}" for side in sides]),
    ):
        yield label, texts[0], texts[1]


def _notes(found: Explanation) -> Iterator[str]:
    """Yield what has to be known beside the figures, a line each."""
    yield f"an eager call takes {found.eager_seconds:.3g} s; calls compiled by {found.backend!r}"
    for name, raised in (
        ("in eager execution", found.eager_raised),
        ("stock", found.stock.raised),
        ("mended", found.mended.raised),
    ):
        if raised:
            yield f"the call raises {name}: {raised}"
    if not found.is_copied:
        yield "made in this process: what was compiled in it is compiled anew when it is called"


def _place_of(cause: Cause) -> str:
    """Return file and line of a cause, and the submodules in which it is."""
    line = "?" if cause.line is None else cause.line
    named = [each or "the object itself" for each in cause.modules]
    shown = ", ".join([*named[:_SHOWN], *["..."] * (len(named) > _SHOWN)])
    return f"{cause.file}:{line}  {cause.function}{f'  in {shown}' if shown else ''}"


_SHOWN: Final = 4  # of the submodules


def _reason_of(cause: Cause) -> str:
    """Return what Dynamo says of a cause, and how often."""
    number = f"{cause.number} " if cause.number else ""
    broken = f"{plural(cause.stock, 'break')} stock, {cause.mended} mended"
    return f"{number}{cause.kind} ({broken})"


def _treatment_of(treatment: Treatment) -> str:
    """Return what was made of a site, without the hint."""
    return f"{treatment.kind} {treatment.status}: {treatment.how}".removesuffix(": ")


def _percent(share: float | None) -> str:
    return "none run" if share is None else f"{share:.0%}"


def _lines_of(number: int, cause: Cause) -> Iterator[str]:
    yield f"{number}. {_place_of(cause)}".replace(cause.file, Path(cause.file).name, 1)
    if cause.source:
        yield f"   | {cause.source}"
    yield f"   {_reason_of(cause)}"
    if cause.explanation:
        yield f"   {cause.explanation}"
    for treatment in cause.treatments:
        yield f"   bcmend: {_treatment_of(treatment)}"
        if treatment.hint:
            yield f"   hint: {treatment.hint}"
    if not cause.treatments:
        yield f"   bcmend: {cause.outcome}"


# A page, which follows the colours that the reader's system has

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --mended: light-dark(#1a7f37, #57c46f);
        --refused: light-dark(#9a6700, #e0a83c); --withdrawn: light-dark(#cf222e, #ff7b72) }
body { background: light-dark(#fff, #14171c); color: light-dark(#1b1f24, #e3e7ec);
       font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem }
h1 { font-size: 1.4rem } h2 { font-size: 1rem; margin: 0; overflow-wrap: anywhere }
table { border-collapse: collapse }
th, td { border-bottom: 1px solid var(--line); padding: .3rem 1rem .3rem 0; text-align: left }
td + td, th + th { font-variant-numeric: tabular-nums; text-align: right }
article { border-left: 3px solid var(--line); margin: 1.2rem 0; padding: .1rem 0 .1rem 1rem }
article p { margin: .3rem 0 }
pre { background: #8881; margin: .4rem 0; overflow-x: auto; padding: .4rem .6rem }
small { opacity: .8 }
.mended { color: var(--mended) } .refused, .planned { color: var(--refused) }
.withdrawn, .stays { color: var(--withdrawn) }
"""


def _page(found: Explanation) -> str:
    """Return the page of an explanation."""
    title = escape(f"bcmend: {found.subject}")
    rows = "".join(
        f"<tr><td>{escape(label)}</td><td>{escape(stock)}</td><td>{escape(mended)}</td></tr>"
        for label, stock, mended in _figures(found)
    )
    causes = "\n".join(map(_cause, found.causes))
    remarks = "".join(f"<p><small>{escape(note)}</small></p>" for note in _notes(found))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{_STYLE}</style></head>\n<body>"
        f"<h1>{title}</h1>\n<p>torch {escape(found.torch)}</p>\n"
        f"{causes or '<p>torch captures it in one piece: there is nothing to mend</p>'}\n"
        f"<table><thead><tr><th></th><th>stock</th><th>mended</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>\n{remarks}</body></html>\n"
    )


def _cause(cause: Cause) -> str:
    parts = [f"<h2>{escape(_place_of(cause))}</h2>"]
    if cause.source:
        parts.append(f"<pre>{escape(cause.source)}</pre>")
    parts.append(f"<p>{escape(_reason_of(cause))}</p>")
    if cause.explanation:
        parts.append(f"<p><small>{escape(cause.explanation)}</small></p>")
    for each in cause.treatments:
        said = f'<span class="{escape(each.status)}">{escape(_treatment_of(each))}</span>'
        hint = f"<br><small>{escape(each.hint)}</small>" if each.hint else ""
        parts.append(f"<p>{said}{hint}<br><small>{escape(each.site)}</small></p>")
    if not cause.treatments:
        kind = "stays" if cause.mended else "mended"
        parts.append(f'<p class="{kind}">{escape(cause.outcome)}</p>')
    return f"<article>{''.join(parts)}</article>"
