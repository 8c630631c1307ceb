"""What calls of an object take in eager execution, compiled, and compiled once mended."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import quantiles
from typing import Any, Final

from bcmend.reports import page
from bcmend.reports.texts import aligned, plural

#: The sides, in the order in which they take turns and are shown.
SIDES: Final = ("eager", "stock", "mended")
#: The pairs of sides that are compared: which one, with which other.
PAIRS: Final = (("stock", "eager"), ("mended", "eager"), ("mended", "stock"))
NEVER: Final = "never"
#: From how many turns on spreads say something.
_TELLING: Final = 3


@dataclass(frozen=True, slots=True)
class Spread:
    """Seconds of a later call, of some turns: each turn gives the median of its calls.

    Attributes:
        median: of the turns.
        low, high: the first and the third quartile.
        turns: how many there were.
    """

    median: float
    low: float
    high: float
    turns: int

    def overlaps(self, other: Spread) -> bool:
        """Whether the two cannot be told apart: the ranges between quartiles meet, or few turns."""
        is_telling = min(self.turns, other.turns) >= _TELLING
        return not is_telling or (self.low <= other.high and other.low <= self.high)


def spread_of(seconds: Sequence[float]) -> Spread | None:
    """Return the spread of what turns have given; None of no turn."""
    if not seconds:
        return None
    known = [*seconds, *seconds] if len(seconds) == 1 else seconds
    low, median, high = quantiles(known, n=4, method="inclusive")
    return Spread(median, low, high, len(seconds))


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of one side; each is None where it was not.

    Attributes:
        later: seconds of a later call.
        first_cold, first_warm: seconds of a first call, with an empty folder of compiled code, and
            in another process that finds there what the first one has compiled.
        graphs: how many graphs a later call runs, each as often as it does.
        breaks: how many graph breaks the first call has had.
        reads: how often a later call reads numbers out of tensors, for which it has to wait.
        peak_bytes: the most memory that the process, or the accelerator, held in later calls.
        raised: what a call has raised, or what its process has ended with, in one line; else empty.
    """

    later: Spread | None = None
    first_cold: float | None = None
    first_warm: float | None = None
    graphs: int | None = None
    breaks: int | None = None
    reads: int | None = None
    peak_bytes: int | None = None
    raised: str = ""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """An object in eager execution, compiled, and compiled once mended, measured in turns.

    Attributes:
        subject: the name of the object.
        torch: the version that was used.
        backend: what calls were compiled by.
        only_traces: whether that back end runs graphs as eager execution does, so that ratios of
            times mean nothing.
        train: whether calls went back.
        in_training_mode: whether the object is a module in training mode.
        device: the kind of device that the tensors are on.
        threads: how many threads of the processor each side had.
        is_copied: whether the sides were copies of the process; else new processes.
        is_complete: whether measuring was not interrupted.
        eager, stock, mended: what was measured.
    """

    subject: str
    torch: str
    backend: str
    only_traces: bool
    train: bool
    in_training_mode: bool
    device: str
    threads: int
    is_copied: bool
    is_complete: bool
    eager: Measured
    stock: Measured
    mended: Measured

    @property
    def raised(self) -> str:
        """What the call raises in eager execution, or else stock; empty where it returns."""
        return self.eager.raised or self.stock.raised

    @property
    def verdict(self) -> str:
        """What mending gains, in one sentence."""
        return _verdict(self)

    def ratio(self, side: str, to: str) -> float | None:
        """Return the time of a later call of a side as a ratio to that of another.

        None where one was not measured, or the back end only traces.
        """
        one, other = self._later(side), self._later(to)
        if one is None or other is None or self.only_traces:
            return None
        return one.median / other.median

    def is_measurable(self, side: str, to: str) -> bool:
        """Return whether later calls of two sides can be told apart by their times."""
        one, other = self._later(side), self._later(to)
        return one is not None and other is not None and not one.overlaps(other)

    def payback(self, side: str, to: str, *, warm: bool = False) -> int | str | None:
        """Return after how many later calls the longer first call of a side is paid back.

        Args:
            side, to: the side, and the one that it is compared with.
            warm: take the first calls that found compiled code.

        Returns:
            0 where the first call takes no longer; "never" where later calls are not measurably
            faster; None where something was not measured, or the back end only traces.
        """
        firsts = [_first(self._measured(each), warm=warm) for each in (side, to)]
        one, other = self._later(side), self._later(to)
        if self.only_traces or one is None or other is None or None in firsts:
            return None
        return paid_back((firsts[0] or 0) - (firsts[1] or 0), one, other)

    def _measured(self, side: str) -> Measured:
        return {"eager": self.eager, "stock": self.stock, "mended": self.mended}[side]

    def _later(self, side: str) -> Spread | None:
        return self._measured(side).later

    def to_dict(self) -> dict[str, object]:
        """Return everything as dictionaries, lists, strings and numbers alone."""
        found: dict[str, object] = json.loads(json.dumps(asdict(self)))
        compared = [
            {
                "side": side,
                "to": to,
                "ratio": self.ratio(side, to),
                "is_measurable": self.is_measurable(side, to) and not self.only_traces,
                "payback_cold": self.payback(side, to),
                "payback_warm": self.payback(side, to, warm=True),
            }
            for side, to in PAIRS
        ]
        return {"schema": _SCHEMA, "verdict": self.verdict, **found, "compared": compared}

    def to_json(self, indent: int | None = 2) -> str:
        """Return `to_dict()` as JSON text; `indent` is the number of spaces, None for one line."""
        return json.dumps(self.to_dict(), indent=indent)

    def to_html(self) -> str:
        """Return everything as one HTML page that needs no other file."""
        return page.page(_TEMPLATE, _title(self), **_values(self))

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return page.fragment(_TEMPLATE, _title(self), **_values(self))

    def __str__(self) -> str:
        table = aligned([("", *SIDES), *_rows(self)])
        lines = [f"bcmend: {self.subject}, torch {self.torch}", self.verdict, "", *table, ""]
        return "\n".join([*lines, *_notes(self)])


_SCHEMA: Final = 1
"""Changes where a name in `to_dict()` gets another meaning, or goes."""


def paid_back(extra: float, later: Spread, other: Spread) -> int | str:
    """Return how many later calls make up for a first call that takes ``extra`` seconds longer."""
    if extra <= 0:
        return 0
    saved = other.median - later.median
    return NEVER if saved <= 0 or later.overlaps(other) else math.ceil(extra / saved)


def _first(measured: Measured, *, warm: bool) -> float | None:
    return measured.first_warm if warm else measured.first_cold


# The verdict


def _verdict(found: Benchmark) -> str:
    if found.eager.raised and found.stock.raised and found.mended.raised:
        return f"each call raises: {found.eager.raised}"
    if found.mended.raised:
        return f"mended: the call raises {found.mended.raised}"
    parts = [] if found.only_traces else [_of_times(found)]
    parts.append(_of_graphs(found.stock.graphs, found.mended.graphs))
    return f"mended: {', '.join(filter(None, parts)) or 'not measured'}"


def _of_times(found: Benchmark) -> str:
    """Return how later calls compare with the other sides, in words; empty where nothing is known.

    Sides from which they cannot be told apart are named together, behind the others.
    """
    known = [to for to in ("stock", "eager") if found.ratio("mended", to) is not None]
    told = [to for to in known if found.is_measurable("mended", to)]
    alike = [to for to in known if to not in told]
    parts = []
    if told:
        ratios = [f"{_ratio(found.ratio('mended', to))} times {_NAMED[to]} time" for to in told]
        parts.append(" and ".join(ratios))
    if alike:
        named = " or ".join(_NAMED[to] for to in alike)
        parts.append(f"no difference measurable to {named} time")
    return ", ".join(parts)


_IN: Final = {"eager": "in eager execution", "stock": "stock", "mended": "mended"}
_NAMED: Final = {"stock": "stock's", "eager": "eager's"}


def _of_graphs(stock: int | None, mended: int | None) -> str:
    if mended is None:
        return ""
    text = "one graph" if mended == 1 else plural(mended, "graph")
    if stock is None:
        return text
    return f"{text}, as stock" if stock == mended else f"{text} instead of {stock or 'none'}"


# The table


def _rows(found: Benchmark) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table: what it is, eager, stock, mended. Those that say nothing go."""
    sides = found.eager, found.stock, found.mended
    rows = (
        ("later call", ["raised" if each.raised else _spread(each.later) for each in sides]),
        ("  ratio to eager", ["", *(_compared(found, each, "eager") for each in SIDES[1:])]),
        ("  ratio to stock", ["", "", _compared(found, "mended", "stock")]),
        ("graphs a call runs", [_count(each.graphs) for each in sides]),
        ("graph breaks", [_count(each.breaks) for each in sides]),
        ("reads of numbers a call", [_count(each.reads) for each in sides]),
        ("first call, cold", [_seconds(each.first_cold) for each in sides]),
        ("first call, warm", [_seconds(each.first_warm) for each in sides]),
        ("peak memory", [_bytes(each.peak_bytes) for each in sides]),
        *(
            (f"paid back beside {to}, {'warm' if warm else 'cold'}", _paybacks(found, to, warm))
            for to in ("stock", "eager")
            for warm in (False, True)
        ),
    )
    for label, texts in rows:
        if any(texts):
            yield label, *(text or "-" for text in texts)


def _compared(found: Benchmark, side: str, to: str) -> str:
    ratio = found.ratio(side, to)
    if ratio is None:
        return ""
    return _ratio(ratio) if found.is_measurable(side, to) else f"{_ratio(ratio)}, not measurable"


def _paybacks(found: Benchmark, to: str, warm: bool) -> list[str]:
    """Return after how many calls each side is paid back, compared with another."""
    texts = []
    for side in SIDES:
        calls = found.payback(side, to, warm=warm) if (side, to) in PAIRS else None
        if isinstance(calls, int):
            calls = f"after {calls:,} calls" if calls else "at once"
        texts.append(calls or "")
    return texts


def _ratio(value: float | None) -> str:
    return f"{value:.2f}" if value is not None and 0.095 < value < 10 else f"{value:.3g}"


def _count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _spread(value: Spread | None) -> str:
    if value is None:
        return ""
    number, unit = _unit(value.median)
    low, high = (_number(each * number) for each in (value.low, value.high))
    return f"{_number(value.median * number)} {unit} ({low} to {high})"


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    number, unit = _unit(value)
    return f"{_number(value * number)} {unit}"


def _unit(seconds: float) -> tuple[float, str]:
    """Return how many of a unit a second has, and its name."""
    if seconds < 1e-3:
        return 1e6, "µs"
    return (1e3, "ms") if seconds < 1 else (1.0, "s")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _bytes(value: int | None) -> str:
    if value is None:
        return ""
    return f"{value / 2**30:.2f} GiB" if value >= 2**30 else f"{value / 2**20:.0f} MiB"


def _notes(found: Benchmark) -> Iterator[str]:
    """Yield what has to be known beside the figures, a line each."""
    what = "forward and backward" if found.train else "forward, without gradients"
    threads = f", {plural(found.threads, 'thread')}" if found.device == "cpu" else ""
    turns = max((each.turns for each in map(found._later, SIDES) if each is not None), default=0)
    where = "copies of this process" if found.is_copied else "new processes"
    how = f"{what}; {found.backend!r}; on {found.device}{threads}"
    yield f"{how}; {plural(turns, 'turn')} each, in {where}"
    for side, measured in zip(SIDES, (found.eager, found.stock, found.mended), strict=True):
        if measured.raised:
            yield f"the call raises {_IN[side]}: {measured.raised}"
    if found.only_traces:
        yield f"{found.backend!r} only traces: its times are not compared"
    if found.in_training_mode and not found.train:
        yield "the module is in training mode: call eval() first to measure inference"
    if not found.is_complete:
        yield "interrupted: this is what was measured until then"


# The page

_TEMPLATE: Final = "bench.html"


def _title(found: Benchmark) -> str:
    return f"bcmend: {found.subject}, torch {found.torch}"


def _values(found: Benchmark) -> dict[str, Any]:
    """Return what the template shows."""
    rows, notes = list(_rows(found)), list(_notes(found))
    return {"verdict": found.verdict, "sides": SIDES, "rows": rows, "notes": notes}
