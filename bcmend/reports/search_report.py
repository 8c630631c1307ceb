"""Why code was traced as often as it was: the log of the search, as text or JSON."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path

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

    def __str__(self) -> str:
        seconds = sum(trace.seconds for trace in self.traces)
        count = plural(len(self.traces), "trace")
        lines = [f"bcmend: {self.subject}", f"{count}, {seconds:.1f} s"]
        for began, traces in itertools.groupby(self.traces, attrgetter("began")):
            lines += ["", began]
            for number, trace in enumerate(traces, 1):
                lines += _lines_of(number, trace)
        return "\n".join(lines)


def _evidence(trace: TraceRecord) -> set[str]:
    return {"", *(found.evidence for found in trace.findings)}


def _lines_of(number: int, trace: TraceRecord) -> list[str]:
    """Return the lines of one trace: how it ended, then what each finding changed."""
    place = f"{Path(trace.file).name}:{'?' if trace.line is None else trace.line}"
    end = "captured" if not trace.reason else f"given up at {place}"
    lines = [f"  {number:2}  {trace.seconds:6.2f} s  {end}"]
    if not trace.reason.startswith("bcmend:") and trace.reason not in _evidence(trace):
        lines.append(f"                {trace.reason}")
    for found, count in Counter(trace.findings).items():
        rows = [
            ("assumed", f"{found.assumed}{f' ({count} times)' * (count > 1)}"),
            ("of", found.subject),
            ("not so", found.evidence),
            ("instead", f"{found.instead}{f', for {found.lifetime}' * bool(found.lifetime)}"),
        ]
        lines += [f"                {row}" for row in aligned([row for row in rows if row[1]])]
    return lines
