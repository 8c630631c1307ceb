"""The table of what became of the tests, as a page of the documentation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from packaging.version import Version

from tests.versions.record import (
    DIFFERS,
    FAILED,
    FAILS,
    NOT_RUN,
    PASSED,
    SKIPPED,
    WHOLE,
    Pair,
    Record,
)

_INTRODUCTION: Final = """\
# Releases of torch and Python

The tests run with each supported pair of a release of torch and a Python. Written by

```sh
python -m tests.versions --resume FILE --write docs/versions.md
```

which makes an environment for each pair whose Python is here, and goes on behind FILE.
*Skipped* are tests that do not concern a pair, and those of what is known to differ; *seconds* is
the time of the tests, one after another.
"""
_CAPTURED: Final = """\
## What torch captures by itself

Each pattern of `corpus/patterns` as stock `torch.compile(fullgraph=True)` captures it with the back
end "eager", without gradients: *whole* is equal to eager execution, *differs* is captured and is
not, *fails* is not captured. Measured by the option `--stock FILE`; then those with which the
releases differ.
"""
_COLUMNS: Final = (PASSED, FAILED, SKIPPED, NOT_RUN)


def page(
    records: Iterable[Record],
    paths: Sequence[str],
    stock: Iterable[Record] = (),
    sample: int = 1,
) -> str:
    """Return the page in Markdown.

    Args:
        records: what became of the tests.
        paths: what of the tests was run; all, if it is empty.
        stock: what stock captures of the patterns.
        sample: of all tests, one in so many of those that compile a program was run.
    """
    found, captured = list(records), list(stock)
    lines = [_INTRODUCTION, "## Tests", "", _told(paths, sample), "", *table(found)]
    failed = sorted(_failures(found))
    if failed:
        lines += ["", "What fails:", "", *failed]
    if captured:
        lines += ["", _CAPTURED, *table(captured, (WHOLE, DIFFERS, FAILS)), "", *changes(captured)]
    return "\n".join(lines) + "\n"


def _told(paths: Sequence[str], sample: int) -> str:
    if not paths and sample == 1:
        return "All tests but the slow ones:"
    if not paths:
        return (
            f"All tests that compile nothing, and one in {sample} of those that compile a program:"
        )
    return f"A part of the tests, {', '.join(f'`{each}`' for each in paths)}:"


def table(records: Sequence[Record], outcomes: Sequence[str] = _COLUMNS) -> Iterator[str]:
    """Yield the lines of a table with a row for each pair, and a column for each outcome."""
    yield f"| torch | Python | {' | '.join(outcomes)} | seconds |"
    yield f"|---|---|{'---|' * len(outcomes)}---|"
    for pair in _pairs(records):
        of_pair = [each for each in records if each.pair == pair]
        count = Counter(each.outcome for each in of_pair)
        seconds = sum(each.seconds for each in of_pair)
        cells = (pair.release, pair.python, *(count[each] for each in outcomes), f"{seconds:.0f}")
        yield f"| {' | '.join(map(str, cells))} |"


def changes(records: Sequence[Record]) -> Iterator[str]:
    """Yield the lines of a table of those patterns with which pairs differ."""
    pairs = _pairs(records)
    yield f"| pattern | {' | '.join(f'{each.release}, {each.python}' for each in pairs)} |"
    yield f"|---|{'---|' * len(pairs)}"
    found = {(each.test, each.pair): each.outcome for each in records}
    for name in dict.fromkeys(each.test for each in records):
        outcomes = [found.get((name, pair), NOT_RUN) for pair in pairs]
        if len(set(outcomes)) > 1:
            yield f"| {name} | {' | '.join(outcomes)} |"


def _pairs(records: Iterable[Record]) -> list[Pair]:
    return sorted({each.pair for each in records}, key=_in_order)


def _in_order(pair: Pair) -> tuple[Version, Version]:
    return Version(pair.release), Version(pair.python)


def _failures(records: Sequence[Record]) -> Iterator[str]:
    tests = {each.test for each in records if each.outcome == FAILED}
    for test in tests:
        pairs = (each.pair for each in records if each.outcome == FAILED and each.test == test)
        shown = ", ".join(
            f"{each.release} on {each.python}" for each in sorted(pairs, key=_in_order)
        )
        yield f"- `{test}`: {shown}"
