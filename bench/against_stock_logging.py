"""`python -m bench.against_stock_logging`: what becomes of output with stock torch and with bcmend.

Stock `torch.compile` keeps a graph whole across output where the callables are listed in
`torch._dynamo.config.reorderable_logging_functions`. The command runs the patterns of output that
way and patched, and compares both with eager execution. It writes a table in Markdown to standard
output, or to the file that it is given. `docs/output.md` is made by it.
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from corpus.patterns import output
from corpus.patterns.pattern import Pattern
from tests.equivalence import (
    CompiledRun,
    Way,
    fresh,
    leave_unpatched,
    patch_then_compile,
    run_compiled,
    run_eagerly,
)
from tests.observation import Observation, differences

PATTERNS: Final = tuple(each for topic in output.TOPICS for each in topic.PATTERNS)

_LOGGER_METHODS: Final = ("debug", "info", "warning", "error", "critical", "log")
_HEAD: Final = """\
# Output: stock torch.compile and bcmend

Stock `torch.compile` keeps a graph whole across output if the callables that write are listed in
`torch._dynamo.config.reorderable_logging_functions`. This page compares that with bcmend, for the
programs of `corpus/patterns/output`.

Each program is run three times: in eager execution; by stock `torch.compile` with `print`,
`warnings.warn` and the functions and methods of `logging` in that list; and patched by bcmend. The
back end is "eager", no gradients flow, and `fullgraph=True` is left out where it does not compile.
`python -m bench.against_stock_logging docs/output.md` writes the page.
"""

_ABOUT_ROWS: Final = """\
## The programs

*One graph* or *breaks* says how the program was captured. *Equal* is a program of which all text,
in order, and everything else that can be observed is that of eager execution. A log record or a
warning that names another file or line counts as a wrong line. *Fails* is a program that raises
another exception than in eager execution, or none.
"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one program has fared in one way; `text` is empty where nothing was written wrongly."""

    whole: bool
    text: str
    rest: str

    @property
    def equal(self) -> bool:
        """Return whether it cannot be told from eager execution."""
        return not self.text and not self.rest

    def __str__(self) -> str:
        count = "one graph" if self.whole else "breaks"
        wrong = "; ".join(each for each in (self.text, self.rest) if each)
        return f"{count}, {wrong or 'equal'}"


@dataclass(frozen=True, slots=True)
class Row:
    """One program under both."""

    name: str
    stock: Verdict
    mended: Verdict


def _reorderable() -> set[Any]:
    functions = {getattr(logging, name) for name in _LOGGER_METHODS}
    methods = {getattr(logging.Logger, name) for name in _LOGGER_METHODS}
    return {print, warnings.warn, *functions, *methods}


def _run(pattern: Pattern, way: Way) -> tuple[CompiledRun, bool]:
    """Run in one graph, or in several where that does not compile."""
    make = fresh(pattern.make)
    run = run_compiled(make, pattern.inputs, way=way)
    raised = [each.raised for each in run.observations if each.raised is not None]
    if not any(each.kind in ("Unsupported", "InternalTorchDynamoError") for each in raised):
        return run, True
    return run_compiled(make, pattern.inputs, fullgraph=False, way=way), False


def _lines(observation: Observation) -> list[object]:
    found: list[object] = []
    for event in observation.events:
        if event[0] in ("stdout", "stderr"):
            found += [(event[0], line) for line in str(event[1]).splitlines()]
        else:
            found.append(event)
    return found


def _about_text(eager: Sequence[Observation], compiled: Sequence[Observation]) -> str:
    """Say what has become of the lines that eager execution writes."""
    total = wrong = 0
    moved = False
    for one, other in zip(eager, compiled, strict=True):
        expected, found = Counter(_lines(one)), Counter(_lines(other))
        total += expected.total()
        wrong += max((expected - found).total(), (found - expected).total())
        moved = moved or _lines(one) != _lines(other)
    if wrong:
        return f"{wrong} of {total} lines lost or wrong"
    return "another order" if moved else ""


def _verdict(pattern: Pattern, way: Way) -> Verdict:
    eager = run_eagerly(fresh(pattern.make), pattern.inputs, training=False, patched=False)
    run, whole = _run(pattern, way)
    rest = [
        each
        for one, other in zip(eager, run.observations, strict=True)
        for each in differences(one, other, may_copy=True, any_random_state=True)
        if not each.startswith("events")
    ]
    about = (
        "" if not rest else "fails" if any("raised" in each for each in rest) else "state differs"
    )
    return Verdict(whole, _about_text(eager, run.observations), about)


def compared(patterns: Iterable[Pattern] = PATTERNS) -> Iterator[Row]:
    """Run each of `patterns` in both ways."""
    for pattern in patterns:
        with torch._dynamo.config.patch(reorderable_logging_functions=_reorderable()):
            stock = _verdict(pattern, leave_unpatched)
        yield Row(pattern.name, stock, _verdict(pattern, patch_then_compile))


def table(rows: Sequence[Row]) -> str:
    """Return the page, ending in a newline."""
    lines = [_HEAD, f"| of {len(rows)} programs | one graph | equal | both |", "|---|---|---|---|"]
    for name, verdicts in (
        ("stock torch.compile", [row.stock for row in rows]),
        ("bcmend", [row.mended for row in rows]),
    ):
        whole = sum(each.whole for each in verdicts)
        equal = sum(each.equal for each in verdicts)
        both = sum(each.equal and each.whole for each in verdicts)
        lines.append(f"| {name} | {whole} | {equal} | {both} |")
    lines += ["", _ABOUT_ROWS, "| program | stock torch.compile | bcmend |", "|---|---|---|"]
    lines += [f"| {row.name} | {row.stock} | {row.mended} |" for row in rows]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page to standard output, or to a file."""
    parser = argparse.ArgumentParser(prog="python -m bench.against_stock_logging")
    parser.add_argument("file", nargs="?", type=Path, help="write here and not to standard output")
    file: Path | None = parser.parse_args(arguments).file
    torch._logging.set_logs(dynamo=logging.CRITICAL)
    page = table(list(compared()))
    if file is None:
        sys.stdout.write(page)
    else:
        file.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
