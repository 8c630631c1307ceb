"""What became of the cases of libraries, as a page of the documentation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Final

from corpus.libraries.record import SLOWER, Outcome, Record

_INTRODUCTION: Final = f"""\
# Functions and modules of libraries

Public functions and modules of libraries, in an order that is drawn once for all. Each is called as
the examples of its docstring call it, or with arguments guessed from its signature; what eager
execution does not accept is left out. Written by

```sh
python -m corpus.libraries NAME --minutes 20 --resume FILE --write docs/libraries.md
```

Whether stock torch.compile breaks is asked with `fullgraph=True`. What breaks is called mended.
*One graph and equal* is with `fullgraph=True`, and equal to eager execution in the result, in the
arguments and in the state of the module. Equal is to the bit with a back end that compiles nothing
(`eager`), and to 1e-4 with Inductor. *Still breaks* is called again without `fullgraph`. *Differs*
is where mended code gives something else than eager execution, where stock does not fail; *stopped*
is what takes longer than the limit of time, or crashes. *Slow to give up* are those that still
break and take more than {SLOWER[0]:.0f} times as long as with stock in the first call, and
{SLOWER[1]:.0f} seconds more. Seconds are wall time of single first calls: other work on the machine
lengthens them.

Guessed arguments are small, and seldom what a program has: a function that breaks with these may be
whole with others, and a module may be in evaluation only.

torchaudio is not among them: its newest wheel in the index is built for CUDA, and does not load
beside a torch for the CPU alone.
"""

_COLUMNS: Final = (
    "library",
    "called",
    "break with stock",
    *(each.value for each in (Outcome.MENDED, Outcome.BREAKS, Outcome.DIFFERS, Outcome.STOPPED)),
    "slow to give up",
    "first call, seconds: stock → mended",
)


def summary(records: Sequence[Record]) -> str:
    """Return in one line what was found."""
    return "; ".join(
        f"{name}: {value}" for name, value in zip(_COLUMNS[1:], _figures(records), strict=True)
    )


def _figures(records: Sequence[Record]) -> list[str]:
    count = Counter(each.outcome for each in records)
    broken = [each for each in records if each.breaks]
    mended = [each for each in broken if each.outcome is Outcome.MENDED]
    of_stock = median([each.stock_seconds for each in mended] or [0.0])
    ours = median([each.seconds for each in mended] or [0.0])
    return [
        str(len(records) - count[Outcome.NO_CALL]),
        str(len(broken)),
        *(str(count[each]) for each in (Outcome.MENDED, Outcome.BREAKS, Outcome.DIFFERS)),
        str(count[Outcome.STOPPED]),
        str(sum(each.is_slow for each in records)),
        f"{of_stock:.1f} → {ours:.1f}",
    ]


def page(of_libraries: Mapping[str, Sequence[Record]]) -> str:
    """Return the page in Markdown; libraries are named with their versions."""
    lines = [_INTRODUCTION, "## Summary", "", f"| {' | '.join(('', *_COLUMNS)[1:])} |"]
    lines += ["|---" * len(_COLUMNS) + "|"]
    groups = {
        (library, backend): [each for each in records if each.backend == backend]
        for library, records in of_libraries.items()
        for backend in sorted({each.backend for each in records})
    }
    for (library, backend), records in groups.items():
        name = library if backend == "eager" else f"{library}, {backend}"
        lines.append(f"| {' | '.join([name, *_figures(records)])} |")
    everything = [each for records in of_libraries.values() for each in records]
    lines += ["", *_reasons(everything)]
    for (library, backend), records in groups.items():
        lines += ["", f"## {library}, {backend}", "", *_rows(records)]
    return "\n".join(lines) + "\n"


def _reasons(records: Sequence[Record]) -> Iterator[str]:
    yield "## Why graphs still break"
    yield ""
    yield "By the reason of the last refused site, else by what Dynamo says."
    yield ""
    yield "| reason | cases |"
    yield "|---|---|"
    count = Counter(each.reason for each in records if each.outcome is Outcome.BREAKS)
    for reason, number in sorted(count.items(), key=lambda each: (-each[1], each[0])):
        yield f"| {_plain(reason)} | {number} |"


def _rows(records: Sequence[Record]) -> Iterator[str]:
    yield "| case | arguments | stock breaks at | outcome | why | seconds |"
    yield "|---|---|---|---|---|---|"
    for each in sorted(records, key=lambda each: each.name):
        if each.breaks or each.outcome is Outcome.STOPPED:
            seconds = f"{each.stock_seconds:.1f} → {each.seconds:.1f}" if each.seconds else ""
            outcome = f"{each.outcome}, slow" if each.is_slow else str(each.outcome)
            reasons = [each.reason, each.why] if each.refusals else [each.why]
            why = ": ".join(dict.fromkeys(reasons)) if each.outcome is not Outcome.MENDED else ""
            cells = (each.name, each.how, _plain(each.stock), outcome, _plain(why), seconds)
            yield f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    """Return a text that breaks no table, and that is short."""
    return " ".join(text.split()).replace("|", "/").replace("<", "&lt;").replace("*", "")[:110]
