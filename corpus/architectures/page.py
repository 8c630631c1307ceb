"""The table of all architectures that were run, and its summary, as a page of the documentation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from corpus.architectures.record import MEASURED, Record

#: The first call of a model that stock captures whole may take so much longer.
LIMIT: Final = 1.05

_INTRODUCTION: Final = """\
# Architectures of transformers {version}

Every architecture that transformers registers, as far as a small model of it can be built from its
configuration class by general rules, with random weights, dropout and layer drop, and arguments
found from its signature. In training a call is a step of an optimizer, and there are two calls.
Written by

```sh
python -m corpus.architectures --resume FILE --write docs/architectures.md
```

A row is one model in one mode. *Graphs*: with stock `torch.compile`, then mended under
`fullgraph=True`. *Operators*: how many are in the graphs of the first call, stock and mended, with
those in both sides of a choice; what is in no graph runs in Python. *Equal*: outputs, gradients,
parameters, buffers, logs and generators are those of eager execution, with Inductor to 1e-4, and
but for what stock changes alike. *First call* and *later call* are of the mended model over the
unpatched one, patching included (but not that bcmend is imported): wall time, then the time of
processors. In the first call stock compiles the graphs that it comes to; where those are few, and
the rest of the model runs in Python, the ratio is large. A later call is the median of several that
compile nothing. Back ends are `inductor`, and `counting`, which compiles nothing: its ratios are
those of tracing alone.
"""


def summary(records: Sequence[Record], registered: int) -> Iterator[str]:
    """Yield what was found, a line for each back end and mode."""
    names = {each.name for each in records}
    built = {each.name for each in records if each.outcome == MEASURED}
    yield f"registered: {registered}; run in some mode: {len(names)}; measured: {len(built)}"
    for backend in sorted({each.backend for each in records}):
        for mode in sorted({each.mode for each in records}):
            chosen = [each for each in records if (each.backend, each.mode) == (backend, mode)]
            if chosen:
                yield f"{backend}, {mode}: {_figures(chosen)}"


def _figures(records: Sequence[Record]) -> str:
    measured = [each for each in records if each.measurement is not None]
    broken = [each for each in measured if each.breaks_with_stock]
    unbroken = [each for each in measured if not each.breaks_with_stock]
    kept = sum(each.is_whole for each in unbroken)
    parts = [
        f"{len(measured)} measured",
        f"{len(broken)} break with stock, of those {sum(map(_whole, broken))} one graph and equal",
        f"{len(unbroken)} whole with stock, of those {kept} still so and equal",
        f"{sum(each.differs for each in measured)} differ",
        f"{sum(map(is_slower, unbroken))} of those whole with stock slower than {LIMIT} times",
    ]
    return ". ".join([*parts, *_ratios(unbroken)])


def _whole(record: Record) -> bool:
    return record.is_whole


def _ratios(records: Sequence[Record]) -> Iterator[str]:
    ratios = [
        each.measurement.first_call_cpu
        for each in records
        if each.measurement is not None and each.is_whole and each.measurement.first_call_cpu
    ]
    if ratios:
        yield f"median of their first calls, processors: {median(ratios):.2f}"


def is_slower(record: Record) -> bool:
    """Return whether the first call of a model that stock captures whole takes too long."""
    found = record.measurement
    return found is not None and not record.breaks_with_stock and found.first_call_cpu > LIMIT


def page(records: Sequence[Record], registered: int, version: str) -> str:
    """Return the page in Markdown."""
    lines = [_INTRODUCTION.format(version=version), "## Summary", ""]
    lines += [f"- {line}" for line in summary(records, registered)]
    lines += [*_not_run(records), "", "## Models that were measured", ""]
    lines += [
        "| model | mode | back end | graphs | operators | equal | first call | later call |"
        " in the way |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    ordered = sorted(records, key=lambda each: (each.name, each.mode, each.backend))
    lines += [_row(each) for each in ordered if each.outcome == MEASURED]
    lines += ["", "## Models that were not", "", "| model | mode | back end | why |"]
    lines += ["|---|---|---|---|"]
    lines += [_missing(each) for each in ordered if each.outcome != MEASURED]
    return "\n".join(lines) + "\n"


def _not_run(records: Sequence[Record]) -> list[str]:
    """Return what is left of a run that was cut off, for each back end and mode."""
    names = {each.name for each in records}
    done = Counter((each.backend, each.mode) for each in records)
    return [
        f"- not run: {len(names) - number} of these with {backend} in mode {mode}"
        for (backend, mode), number in sorted(done.items())
        if number < len(names)
    ]


def _row(record: Record) -> str:
    found = record.measurement
    assert found is not None
    stock = "fails" if found.stock_error else str(found.stock_graphs)
    mended = "no" if found.error else str(found.graphs)
    equal = "" if found.error else "no" if found.differences else "yes"
    cells = (
        f"{record.name} ({record.model})",
        record.mode,
        record.backend,
        f"{stock} → {mended}",
        f"{found.stock_operators} → {found.operators}" if found.operators else "",
        equal,
        _pair(found.first_call, found.first_call_cpu),
        _pair(found.later_call, found.later_call_cpu),
        _plain(record.obstacle),
    )
    return f"| {' | '.join(cells)} |"


def _missing(record: Record) -> str:
    return f"| {record.name} | {record.mode} | {record.backend} | {_plain(record.obstacle)} |"


def _pair(wall: float, processor: float) -> str:
    return f"{wall:.2f}, {processor:.2f}" if wall else ""


def _plain(text: str) -> str:
    """Return a text that breaks no table, and that is short."""
    return " ".join(text.split()).replace("|", "/").replace("<", "&lt;")[:140]
