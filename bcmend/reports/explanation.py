"""What `torch.compile` makes of an object, stock and mended side by side, as text, JSON or HTML."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from bcmend.reports import page
from bcmend.reports.advice import advice_without_a_site
from bcmend.reports.model_tree import Part, Row, rows_of
from bcmend.reports.outcomes import times
from bcmend.reports.page import Entry, Group, Said, named
from bcmend.reports.places import named_break, shown_place
from bcmend.reports.source import Line, Span, excerpt, excerpt_text
from bcmend.reports.texts import aligned, plural
from bcmend.reports.workflow_commands import command


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
            execution; None where the back end only traces.
        raised: what the first call has raised, in one line; empty where it has returned.
    """

    graphs: int
    breaks: int
    operators: int
    share: float | None
    recompiled: int
    first: float | None
    later: float | None
    raised: str


@dataclass(frozen=True, slots=True)
class Treatment:
    """What bcmend has made of a site at the line of a graph break.

    Attributes:
        site: its name, which `Policy(off=...)` takes.
        kind: "branch", "loop", "guard", "output" or another kind of site.
        status: as of a `SiteRecord`.
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
        spans: where the expressions stand that broke graphs.
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
    spans: tuple[Span, ...] = ()

    @property
    def outcome(self) -> str:
        """What has become of it, in a few words, where no site says it."""
        if self.mended:
            return "still breaks the graph: bcmend mends nothing of this kind here"
        return _WITHOUT_A_SITE.get(
            self.number.lower(), "mended: no graph break since the code is mended"
        )

    @property
    def what_to_do(self) -> tuple[str, ...]:
        """What to do about it, each advice once; empty where it breaks no graph any more."""
        if not self.mended:
            return ()
        hints = tuple(dict.fromkeys(each.hint for each in self.treatments if each.hint))
        return hints if self.treatments else (advice_without_a_site(self.file),)

    @property
    def lines(self) -> list[Line]:
        """The source with the expressions marked; the bare line where the file is gone."""
        return excerpt(self.file, self.line, self.spans)


#: What became of a break of which no site is, by torch's number of it.
_WITHOUT_A_SITE: Final = {
    "gb0036": "mended by what is known of the size: the graph has it as an unknown number",
    "gb0124": "mended by what is known of the number: it is a constant, or stays in the graph",
    "gb0170": "mended by what is known of the condition",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """An object beside itself mended, with the causes in the order in which a call met them.

    Attributes:
        subject: the name of the object.
        torch: the version that was used.
        backend: what the timed calls were compiled by. Graphs are counted without one.
        is_copied: whether the calls were made in copies of the process.
        train: whether they went back.
        eager_seconds: what a later call takes in eager execution.
        eager_raised: what it raises, in one line; empty where it returns.
        stock, mended: what compiling has given.
        causes: where graphs broke, in either.
        parts: the submodules, with what of graphs and breaks is in each.
    """

    subject: str
    torch: str
    backend: str
    is_copied: bool
    train: bool
    eager_seconds: float
    eager_raised: str
    stock: Side
    mended: Side
    causes: tuple[Cause, ...]
    parts: tuple[Part, ...] = ()

    @property
    def verdict(self) -> str:
        """How many graph breaks a call has, stock and mended, and what is left, in one sentence."""
        raised = f"; the call raises mended: {self.mended.raised}" * self.raises_mended
        if not self.causes:
            return _without_causes(self) + raised
        places = len({(cause.file, cause.line) for cause in self.remaining})
        left = f"{plural(places, 'place')} left" if places else "nothing left"
        return f"{plural(self.stock.breaks, 'break')} -> {self.mended.breaks}; {left}{raised}"

    @property
    def raises_mended(self) -> bool:
        """Whether the call raises only once the object is mended."""
        return bool(self.mended.raised) and not self.raised

    @property
    def raised(self) -> str:
        """What the call raises in eager execution, or else stock; empty where it returns."""
        return self.eager_raised or self.stock.raised

    @property
    def remaining(self) -> tuple[Cause, ...]:
        """The causes that still break graphs once the object is mended."""
        return tuple(cause for cause in self.causes if cause.mended)

    @property
    def is_mended(self) -> bool:
        """Whether no graph breaks once the object is mended, and the call raises no more by it."""
        return not self.mended.breaks and (bool(self.raised) or not self.mended.raised)

    def to_dict(self) -> dict[str, object]:
        """Return everything as dictionaries, lists, strings and numbers alone."""
        found: dict[str, object] = json.loads(json.dumps(asdict(self)))
        return {"schema": _SCHEMA, **found}

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
        """Return an ``::error`` for each cause that remains and a ``::notice``, a line each.

        These are workflow commands, which GitHub shows beside the lines of the files.
        """
        return "\n".join(_commands(self))

    def __str__(self) -> str:
        lines = [f"bcmend: {self.subject}, torch {self.torch}", self.verdict]
        left, mended = self.remaining, [each for each in self.causes if not each.mended]
        lines += ["", "still breaks the graph", *listed(left, self.subject)] if left else []
        after = listed(mended, self.subject, first=len(left) + 1)
        lines += ["", "mended", *after] if mended else []
        table = aligned([("", "stock", "mended"), *_figures(self)])
        return "\n".join([*lines, "", *table, *_notes(self)])


_SCHEMA: Final = 1
"""Changes where a name in `to_dict()` gets another meaning, or goes."""


def listed(causes: Iterable[Cause], subject: str, first: int = 1) -> Iterator[str]:
    """Yield the lines of a list of causes, numbered from ``first``, each behind an empty one."""
    for number, cause in enumerate(causes, first):
        yield ""
        yield from _lines_of(number, cause, subject)


def _without_causes(found: Explanation) -> str:
    if found.raised:
        return f"the call raised {found.raised}: how far torch captures it is not known"
    return "0 breaks: torch captures it in one piece, there is nothing to mend"


def _figures(found: Explanation) -> Iterator[tuple[str, str, str]]:
    """Yield the rows of the table: what it is, stock, mended; no times where none count."""
    sides = found.stock, found.mended
    for label, texts in (
        ("graphs", [f"{side.graphs}" for side in sides]),
        ("graph breaks", [f"{side.breaks}" for side in sides]),
        ("operators captured", [f"{side.operators}" for side in sides]),
        ("operators inside graphs", [_percent(side.share) for side in sides]),
        ("graphs of a second call", [f"{side.recompiled}" for side in sides]),
        ("first call / eager call", [_ratio(side.first) for side in sides]),
        ("later call / eager call", [_ratio(side.later) for side in sides]),
    ):
        if texts[0] or texts[1]:
            yield label, texts[0], texts[1]


def _notes(found: Explanation) -> Iterator[str]:
    """Yield what has to be known beside the figures, a line each."""
    what = "call, with its backward pass," if found.train else "call"
    if found.stock.later is None:
        yield f"no times: {found.backend!r} only traces"
    else:
        seconds = f"{found.eager_seconds:.3g} s"
        yield f"an eager {what} takes {seconds}; calls compiled by {found.backend!r}"
    for name, raised in (
        ("in eager execution", found.eager_raised),
        ("stock", found.stock.raised),
        ("mended", found.mended.raised),
    ):
        if raised:
            yield f"the call raises {name}: {raised}"
    if not found.is_copied:
        yield "made in this process: what was compiled in it is compiled anew when it is called"


def _modules_of(cause: Cause, subject: str) -> str:
    """Return the submodules in which a cause is, the first of them if they are many."""
    shown = [each or subject for each in cause.modules]
    return ", ".join([*shown[:_SHOWN], *["..."] * (len(shown) > _SHOWN)])


_SHOWN: Final = 4  # of the submodules


def _reason_of(cause: Cause) -> str:
    """Return what Dynamo says of a cause, and how often."""
    broken = f"{plural(cause.stock, 'break')} stock, {cause.mended} mended"
    return f"{named_break(cause.number, cause.kind)} ({broken})"


def _treatment_of(cause: Cause, treatment: Treatment) -> str:
    """Return what was made of a site of a cause, without the hint."""
    is_left = treatment.status in ("refused", "withdrawn")
    status = "not mended" if is_left and not cause.mended else named(treatment.status)
    return f"{treatment.kind} {status}: {treatment.how}".removesuffix(": ")


def _ratio(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _percent(share: float | None) -> str:
    return "none run" if share is None else f"{share:.0%}"


def _lines_of(number: int, cause: Cause, subject: str) -> Iterator[str]:
    place = f"{shown_place(cause.file, cause.line)}  {cause.function}"
    yield f"{number}. {place}{'  in ' * bool(cause.modules)}{_modules_of(cause, subject)}"
    source = list(excerpt_text(cause.lines)) or [f"| {cause.source}"] * bool(cause.source)
    yield from (f"   {line}" for line in source)
    yield f"   {_reason_of(cause)}"
    yield from (f"   {line}" for line in _details_of(cause))


def _details_of(cause: Cause) -> Iterator[str]:
    """Yield what Dynamo explains, and what bcmend has made of it."""
    if cause.explanation:
        yield cause.explanation
    for text, count in Counter(_treatment_of(cause, each) for each in cause.treatments).items():
        yield f"bcmend: {text}{times(count)}"
    if not cause.treatments:
        yield f"bcmend: {cause.outcome}"
    yield from (f"what to do: {each}" for each in cause.what_to_do)


# Workflow commands


def _commands(found: Explanation) -> Iterator[str]:
    for cause in found.remaining:
        title = f"graph break: {named_break(cause.number, cause.kind)}"
        yield command(
            "error", "\n".join(_details_of(cause)), file=cause.file, line=cause.line, title=title
        )
    title = f"bcmend: {found.subject}"
    if found.raises_mended:
        yield command("error", f"the call raises mended: {found.mended.raised}", title=title)
    rows = [f"{label}: {stock} stock, {mended} mended" for label, stock, mended in _figures(found)]
    lines = [*([] if found.causes else [_without_causes(found)]), *rows, *_notes(found)]
    yield command("notice", "\n".join(lines), title=title)


# The page: the verdict, the model as a picture, what is left, what was mended

_TEMPLATE: Final = "explanation.html"


def _values(found: Explanation) -> dict[str, object]:
    ordered = sorted(found.causes, key=lambda each: not each.mended)  # as text numbers them
    numbered = [(f"cause-{number}", each) for number, each in enumerate(ordered, 1)]
    entries = [(each, _entry(anchor, each, found.subject)) for anchor, each in numbered]
    is_bad = bool(found.remaining) or found.raises_mended
    return {
        "verdict": found.verdict.replace("->", "\N{RIGHTWARDS ARROW}"),
        "tone": "bad" if is_bad else "good" if found.causes else "",
        "rows": [(row, _links(row, numbered)) for row in rows_of(found.subject, found.parts)],
        "left": _groups([entry for cause, entry in entries if cause.mended]),
        "mended": _groups([entry for cause, entry in entries if not cause.mended]),
        "sides": [("stock", found.stock), ("mended", found.mended)],
        "figures": list(_figures(found)),
        "notes": list(_notes(found)),
    }


def _links(row: Row, numbered: Sequence[tuple[str, Cause]]) -> list[str]:
    """Return the anchors of the causes that broke graphs in the submodules of a row."""
    paths = set(row.paths)
    return [anchor for anchor, each in numbered if paths & set(each.modules or (None,))]


def _groups(entries: Sequence[Entry]) -> list[Group]:
    return [Group("", entries)] if entries else []


def _entry(anchor: str, cause: Cause, subject: str) -> Entry:
    where = _modules_of(cause, subject)
    return Entry(
        shown_place(cause.file, cause.line),
        cause.function,
        f"in {where}" if where else "",
        cause.lines,
        list(_said(cause)),
        cause.what_to_do,
        [text for text in (_reason_of(cause), cause.explanation) if text],
        "" if cause.lines else cause.source,
        anchor,
    )


def _said(cause: Cause) -> Iterator[Said]:
    alike: dict[tuple[str, str], list[Treatment]] = {}
    for each in cause.treatments:
        alike.setdefault((each.status, _treatment_of(cause, each)), []).append(each)
    for (status, text), sites in alike.items():
        names = ", ".join(Counter(each.site for each in sites))
        yield Said(status, f"{text}{times(len(sites))}", names)
    if not cause.treatments:
        yield Said("breaks" if cause.mended else "mended", cause.outcome)
