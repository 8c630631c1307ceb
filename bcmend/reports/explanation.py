"""What `torch.compile` makes of an object, stock and mended side by side, as text, JSON or HTML."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from html import escape
from typing import Final

from bcmend.reports import page
from bcmend.reports.places import named_break, shown_place
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
        train: whether they went back.
        eager_seconds: what a later call takes in eager execution.
        eager_raised: what it raises, in one line; empty where it returns.
        stock, mended: what compiling has given.
        causes: where graphs broke, in either.
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
        return _page(self)

    def to_github(self) -> str:
        """Return an ``::error`` for each cause that remains and a ``::notice``, a line each.

        These are workflow commands, which GitHub shows beside the lines of the files.
        """
        return "\n".join(_commands(self))

    def __str__(self) -> str:
        lines = [f"bcmend: {self.subject}, torch {self.torch}"]
        lines += listed(self.causes)
        if not self.causes:
            lines += ["", _without_causes(self)]
        table = aligned([("", "stock", "mended"), *_figures(self)])
        return "\n".join([*lines, "", *table, *_notes(self)])


_SCHEMA: Final = 1
"""Changes where a name in `to_dict()` gets another meaning, or goes."""


def listed(causes: Iterable[Cause]) -> Iterator[str]:
    """Yield the lines of a numbered list of causes, each behind an empty one."""
    for number, cause in enumerate(causes, 1):
        yield ""
        yield from _lines_of(number, cause)


def _without_causes(found: Explanation) -> str:
    if found.raised:
        return f"the call raised {found.raised}: how far torch captures it is not known"
    return "torch captures it in one piece: there is nothing to mend"


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


def _modules_of(cause: Cause) -> str:
    """Return the submodules in which a cause is, the first of them if they are many."""
    named = [each or "the object itself" for each in cause.modules]
    return ", ".join([*named[:_SHOWN], *["..."] * (len(named) > _SHOWN)])


_SHOWN: Final = 4  # of the submodules


def _reason_of(cause: Cause) -> str:
    """Return what Dynamo says of a cause, and how often."""
    broken = f"{plural(cause.stock, 'break')} stock, {cause.mended} mended"
    return f"{named_break(cause.number, cause.kind)} ({broken})"


def _treatment_of(treatment: Treatment) -> str:
    """Return what was made of a site, without the hint."""
    status = page.named(treatment.status)
    return f"{treatment.kind} {status}: {treatment.how}".removesuffix(": ")


def _ratio(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _percent(share: float | None) -> str:
    return "none run" if share is None else f"{share:.0%}"


def _lines_of(number: int, cause: Cause) -> Iterator[str]:
    place = f"{shown_place(cause.file, cause.line)}  {cause.function}"
    yield f"{number}. {place}{'  in ' * bool(cause.modules)}{_modules_of(cause)}"
    if cause.source:
        yield f"   | {cause.source}"
    yield f"   {_reason_of(cause)}"
    yield from (f"   {line}" for line in _details_of(cause))


def _details_of(cause: Cause) -> Iterator[str]:
    """Yield what Dynamo explains, and what bcmend has made of it."""
    if cause.explanation:
        yield cause.explanation
    for treatment in cause.treatments:
        yield f"bcmend: {_treatment_of(treatment)}"
        if treatment.hint:
            yield f"hint: {treatment.hint}"
    if not cause.treatments:
        yield f"bcmend: {cause.outcome}"


# Workflow commands


def _commands(found: Explanation) -> Iterator[str]:
    for cause in found.remaining:
        title = f"graph break: {named_break(cause.number, cause.kind)}"
        yield command(
            "error", "\n".join(_details_of(cause)), file=cause.file, line=cause.line, title=title
        )
    title = f"bcmend: {found.subject}"
    if found.mended.raised and not found.raised:
        yield command("error", f"the call raises mended: {found.mended.raised}", title=title)
    rows = [f"{label}: {stock} stock, {mended} mended" for label, stock, mended in _figures(found)]
    lines = [*([] if found.causes else [_without_causes(found)]), *rows, *_notes(found)]
    yield command("notice", "\n".join(lines), title=title)


# The page


def _page(found: Explanation) -> str:
    return page.page(f"bcmend: {found.subject}", _body(found))


def _body(found: Explanation) -> Iterator[str]:
    rows = "".join(
        f"<tr><td>{escape(label)}</td><td>{escape(stock)}</td><td>{escape(mended)}</td></tr>"
        for label, stock, mended in _figures(found)
    )
    yield (
        "<table class=figures><thead><tr><th></th><th>stock</th><th>mended</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )
    yield "".join(f"<p><small>{escape(note)}</small></p>" for note in _notes(found))
    yield page.facts([("versions", f"torch {found.torch}")])
    yield page.legend(each.status for cause in found.causes for each in cause.treatments)
    if not found.causes:
        yield f"<p>{escape(_without_causes(found))}</p>"
        return
    yield "<h2>Where graphs break</h2>"
    yield from map(_cause, found.causes)


def _cause(cause: Cause) -> str:
    modules = f' <span class="soft">in {escape(_modules_of(cause))}</span>' if cause.modules else ""
    place = f'<span class="place">{escape(shown_place(cause.file, cause.line))}</span>'
    parts = [
        f"<h3>{place} <code>{escape(cause.function)}</code>{modules}</h3>",
        page.written(cause.source),
        f"<p>{escape(_reason_of(cause))}</p>",
    ]
    if cause.explanation:
        parts.append(f"<p><small>{page.prose(cause.explanation)}</small></p>")
    for each in cause.treatments:
        said = page.coloured(each.status, _treatment_of(each))
        hint = f"<p><small>What to do: {page.prose(each.hint)}</small></p>" if each.hint else ""
        name = f'<small class="name">{escape(each.site)}</small>'
        parts.append(f'<div class="head why">{said}{name}</div>{hint}')
    if not cause.treatments:
        kind = "breaks" if cause.mended else "mended"
        parts.append(f"<p>{page.coloured(kind, cause.outcome)}</p>")
    return f"<article>{''.join(parts)}</article>"
