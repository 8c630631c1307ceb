"""Why code was traced as often as it was: the log of the search, as text or JSON."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import NamedTuple

from bcmend.reports.places import short_place
from bcmend.reports.texts import aligned, plural


@dataclass(frozen=True, slots=True)
class FindingRecord:
    """Something that a trace took for granted and that did not hold.

    Attributes:
        subject: the name of a site, or the qualified name of a function.
        assumed: what was taken for granted.
        evidence: what showed that it does not hold; empty where the line says it.
        instead: what later traces do.
        lifetime: for how long; empty where it is until the object is unpatched.
    """

    subject: str
    assumed: str
    evidence: str
    instead: str
    lifetime: str


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """One trace by Dynamo.

    Attributes:
        began: the qualified name of the function at which it began.
        file: the source file of the function in which it ended.
        line: the source line, or None where it is not known.
        function: the qualified name of that function.
        reason: why it was given up, in one line; empty where it gave a graph.
        seconds: how long it took, the back end included.
        findings: what was not assumed any more since.
    """

    began: str
    file: str
    line: int | None
    function: str
    reason: str
    seconds: float
    findings: tuple[FindingRecord, ...]


@dataclass(frozen=True, slots=True)
class Why:
    """The traces of all code that an object reaches, those of each function in order.

    Attributes:
        subject: the name of the object.
        traces: at most a hundred for each code object.
    """

    subject: str
    traces: tuple[TraceRecord, ...]

    def to_dict(self) -> dict[str, object]:
        """Return the log as dictionaries, lists, strings and numbers alone."""
        return {"subject": self.subject, "traces": [asdict(trace) for trace in self.traces]}

    def to_json(self) -> str:
        """Return what ``to_dict`` returns as JSON text."""
        return json.dumps(self.to_dict(), indent=2)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from bcmend.reports import page  # which few need

        began = itertools.groupby(self.traces, attrgetter("began"))
        functions = [(name, list(map(_shown, traces))) for name, traces in began]
        title = f"bcmend: {self.subject}"
        return page.fragment("why.html", title, verdict=self.summary, functions=functions)

    @property
    def summary(self) -> str:
        """How many traces there were, and how long they took."""
        seconds = sum(trace.seconds for trace in self.traces)
        return f"{plural(len(self.traces), 'trace')}, {seconds:.1f} s"

    def __str__(self) -> str:
        lines = [f"bcmend: {self.subject}", self.summary]
        for began, traces in itertools.groupby(self.traces, attrgetter("began")):
            lines += ["", began]
            for number, trace in enumerate(traces, 1):
                lines += _lines_of(number, trace)
        return "\n".join(lines)


def _evidence(trace: TraceRecord) -> set[str]:
    return {"", *(found.evidence for found in trace.findings)}


def _lines_of(number: int, trace: TraceRecord) -> list[str]:
    """Return the lines of one trace: how it ended, then what each finding changed."""
    shown = _shown(trace)
    lines = [f"  {number:2}  {trace.seconds:6.2f} s  {shown.end}"]
    if shown.said:
        lines.append(f"                {shown.said}")
    for rows in shown.findings:
        lines += [f"                {row}" for row in aligned(rows)]
    return lines


class _Shown(NamedTuple):
    """A trace as it is shown: its end, what is said of that, and what each finding changed."""

    seconds: float
    reason: str
    end: str
    said: str
    findings: list[list[tuple[str, str]]]


def _shown(trace: TraceRecord) -> _Shown:
    end = f"stopped at {short_place(trace.file, trace.line)}" if trace.reason else "captured"
    is_said = not trace.reason.startswith("bcmend:") and trace.reason not in _evidence(trace)
    findings = [_rows(found, count) for found, count in Counter(trace.findings).items()]
    return _Shown(trace.seconds, trace.reason, end, trace.reason * is_said, findings)


def _rows(found: FindingRecord, count: int) -> list[tuple[str, str]]:
    """Return what a finding changed: what each row is, and its text."""
    rows = [
        ("assumed", f"{found.assumed}{f' ({count} times)' * (count > 1)}"),
        ("of", found.subject),
        ("not so", found.evidence),
        ("instead", f"{found.instead}{f', for {found.lifetime}' * bool(found.lifetime)}"),
    ]
    return [row for row in rows if row[1]]
