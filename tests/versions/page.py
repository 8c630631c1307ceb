"""The table of what became of the tests, as a page of the documentation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from packaging.version import Version

from tests.versions.record import FAILED, NOT_RUN, PASSED, SKIPPED, Pair, Record

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
_COLUMNS: Final = (PASSED, FAILED, SKIPPED, NOT_RUN)


def page(records: Iterable[Record], paths: Sequence[str]) -> str:
    """Return the page in Markdown; ``paths`` says what of the tests was run, or all."""
    found = list(records)
    lines = [_INTRODUCTION, "## Tests", "", _told(paths), "", *table(found)]
    failed = sorted(_failures(found))
    if failed:
        lines += ["", "What fails:", "", *failed]
    return "\n".join(lines) + "\n"


def _told(paths: Sequence[str]) -> str:
    if not paths:
        return "All tests but the slow ones:"
    return f"A part of the tests, {', '.join(f'`{each}`' for each in paths)}:"


def table(records: Sequence[Record]) -> Iterator[str]:
    """Yield the lines of the table, a row for each pair."""
    yield f"| torch | Python | {' | '.join(_COLUMNS)} | seconds |"
    yield f"|---|---|{'---|' * len(_COLUMNS)}---|"
    for pair in sorted({each.pair for each in records}, key=_in_order):
        of_pair = [each for each in records if each.pair == pair]
        count = Counter(each.outcome for each in of_pair)
        seconds = sum(each.seconds for each in of_pair)
        cells = (pair.release, pair.python, *(count[each] for each in _COLUMNS), f"{seconds:.0f}")
        yield f"| {' | '.join(map(str, cells))} |"


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
