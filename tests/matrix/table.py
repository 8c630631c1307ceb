"""What a run has found, as a page of the documentation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from tests.matrix.comparison import (
    AS_STOCK,
    BROKEN,
    DIFFERS,
    LEFT_OUT,
    ONE_GRAPH,
    STATUSES,
    WORSE,
    Verdict,
)
from tests.matrix.constructs import GROUPS
from tests.matrix.programs import (
    CONSTRUCT,
    EFFECT,
    MEMBERS,
    OBSERVER,
    Case,
    all_pairs,
    kind_of,
    pairs_of,
)
from tests.matrix.surroundings import SURROUNDINGS


@dataclass(frozen=True, slots=True)
class Record:
    """A case, the seed that it is of, and what became of it."""

    case: Case
    verdict: Verdict
    seconds: float

    def as_row(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_row(cls, row: dict[str, Any]) -> Record:
        return cls(Case(**row["case"]), Verdict(**row["verdict"]), row["seconds"])


#: What stands in a cell, in this order.
_COUNTED: Final = (ONE_GRAPH, BROKEN, AS_STOCK, DIFFERS)

_INTRODUCTION: Final = """\
# The matrix of effects

`tests/matrix` writes a program for every pair of a kind of effect and a construct whose condition
is a tensor, and for every pair of these with a way to observe the effect later. The effects are
taken from the Python reference and from torch's own index. Each program is called six times on one
state, on the two sides of the condition in turn; the two calls in the middle may have another
shape, be in evaluation mode or without gradients. Round every second program stands something that
changes no result: a checkpoint, hooks of saved tensors, a mode, signals, a transform. What the
program does mended is compared with eager execution, and where it is not one graph and equal, with
stock `torch.compile`. Compared are results, exceptions, output, warnings, all objects of the
program, gradients, shared memory, generators of random numbers, settings of torch and of the
process. Each run has a process of its own.

```sh
python -m tests.matrix --minutes 60 --resume FILE --write docs/matrix.md  # goes on behind FILE
python -m tests.matrix --only "list: append" --minutes 5     # an effect, a construct, an observer
python -m tests.matrix --show "list: append | while | in the call"   # a program, what it does
python -m tests.matrix --around checkpoint --minutes 20      # what stands round each call
python -m tests.matrix --every --minutes 240                 # every effect, not one of each kind
python -m tests.matrix --oracle sides --minutes 20           # one call, told which sides to take
python -m pytest tests/matrix
```

What [deviations.md](deviations.md) declares is left out: zeros for a gradient that is None in eager
execution, a copy where that has an alias, and a merged result that requires gradients. Other rows
of that page are not, and differ below. These are objects, generators, coroutines and weak
references that end late, caches of functions, deques with a `maxlen` and optimizers that become
`capturable`. They are also globals of the standard library, warnings that a filter makes an error,
and what a merged attribute is later compared with by identity.

| module of `tests/matrix` | what it holds |
|---|---|
| `python_objects.py`, `python_containers.py`, `python_process.py` | effects of Python |
| `torch_effects.py`, `torch_training.py` | effects of torch |
| `constructs.py` | constructs, observers, conditions |
| `surroundings.py` | what stands round a call |
| `programs.py` | the choice of programs, and their text |
| `comparison.py` | a run in a process of its own, and the verdict |

To add an effect: a row with its statements and an expression that shows it. A test runs it in
eager execution, and fails if that does not show which side was taken.
"""

_LEGEND: Final = """
A cell has four numbers: programs that are *one graph* · that are *broken* up, but equal · that
differ *as stock* `torch.compile` does · that *differ* where stock does not. Programs that eager
execution itself gives no reference for are left out.
"""


def page_of(records: Sequence[Record], backend: str) -> str:
    """Return the page of a run."""
    return "\n".join(_lines(records, backend)) + "\n"


def _lines(records: Sequence[Record], backend: str) -> Iterator[str]:
    yield _INTRODUCTION
    counts = Counter(each.verdict.status for each in records)
    pairs = {pair for each in records for pair in pairs_of(_triple(each))}
    known = all_pairs()
    yield f"## A run with the back end `{backend}`\n"
    yield (
        f"{len(records)} programs, of {len(EFFECT)} effects of {len(MEMBERS)} kinds, "
        f"{len(CONSTRUCT)} constructs and {len(OBSERVER)} observers: {len(pairs & known)} of "
        f"{len(known)} pairs."
    )
    yield "\n| what became of them | programs |\n|---|---|"
    yield from (f"| {status} | {counts[status]} |" for status in STATUSES)
    yield _LEGEND
    yield from _table("kind of effect", GROUPS, list(MEMBERS), records, _kind_and_group)
    yield from _table("observer", GROUPS, list(OBSERVER), records, _observer_and_group)
    yield from _table("round the call", ("all effects",), list(SURROUNDINGS), records, _surrounding)
    yield from _table("construct", ("all effects",), list(CONSTRUCT), records, _construct)
    for status in (DIFFERS, WORSE):
        yield from _listed(status, [each for each in records if each.verdict.status == status])


def _triple(record: Record) -> tuple[str, str, str]:
    return record.case.effect, record.case.construct, record.case.observer


def _kind_and_group(case: Case) -> tuple[str, str]:
    return kind_of(case.effect), CONSTRUCT[case.construct].group


def _observer_and_group(case: Case) -> tuple[str, str]:
    return case.observer, CONSTRUCT[case.construct].group


def _surrounding(case: Case) -> tuple[str, str]:
    return case.around, "all effects"


def _construct(case: Case) -> tuple[str, str]:
    return case.construct, "all effects"


def _table(
    title: str, columns: Sequence[str], rows: Sequence[str], records: Sequence[Record], place: Any
) -> Iterator[str]:
    found: dict[tuple[str, str], Counter[str]] = {}
    for each in records:
        found.setdefault(place(each.case), Counter())[each.verdict.status] += 1
    yield f"\n| {title} | {' | '.join(columns)} |"
    yield "|---" * (1 + len(columns)) + "|"
    for row in rows:
        cells = (_cell(found.get((row, column), Counter())) for column in columns)
        yield f"| {row} | {' | '.join(cells)} |"


def _cell(counts: Counter[str]) -> str:
    numbers = [counts[status] for status in _COUNTED]
    numbers[1] += counts[WORSE]
    return " · ".join(map(str, numbers)) if sum(numbers) else ""


_HEADINGS: Final = {
    DIFFERS: "Programs that differ where stock does not",
    WORSE: "Programs that run more graphs than with stock",
}


def _listed(status: str, records: Sequence[Record]) -> Iterator[str]:
    if not records:
        return
    yield f"\n## {_HEADINGS[status]}\n"
    yield "| program | with | what differs |\n|---|---|---|"
    for each in sorted(records, key=lambda each: each.case.name):
        verdict = each.verdict
        what = verdict.mended or f"{verdict.graphs} graphs, {verdict.stock_graphs} with stock"
        yield f"| {_escaped(each.case.name)} | {each.case.options} | {_escaped(what[:160])} |"


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("|", "/").replace("`", "'")


def summary_of(records: Sequence[Record]) -> str:
    """Return the counts of a run in a line."""
    counts = Counter(each.verdict.status for each in records)
    left_out = f", {counts[LEFT_OUT]} {LEFT_OUT}" if counts[LEFT_OUT] else ""
    counted = ", ".join(f"{counts[each]} {each}" for each in STATUSES if each != LEFT_OUT)
    return f"{len(records)} programs: {counted}{left_out}"
