"""`python -m bench.before [NAME ...]`: code as it was before a break was removed, beside the fix.

Prints, for each case of `corpus.before`: what the first call takes of all processors when the old
form is mended, `bcmend.patch` included, over that of the form fixed by hand; the same of later
calls; and how many graphs all calls compile. Compiled by Inductor with its own settings, but that
nothing comes out of a cache and that its compilers are children of this process, whose time is
counted. First calls are made in turn, and the least time of each counts; later calls go through all
layouts in turn. The exit code is 1 where a ratio is larger than 1.05.
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from rich import box
from rich.console import Console
from rich.table import Table
from torch.nn import Module

import bcmend
from bench.timing import cpu_ratio
from corpus.before.case import LARGE, Case
from corpus.before.registry import CASES
from corpus.models.measure import CountingBackend
from corpus.transformers5.measure import now

LIMIT: Final = 1.05
TABLE_WIDTH: Final = 110
_FIRST_CALLS: Final = 2
_ROUNDS: Final = 30
_SETTINGS: Final = {"force_disable_caches": True, "compile_threads": 1}
FORMS: Final = ("before", "fixed")


@dataclass(frozen=True, slots=True)
class Found:
    """What was measured of a case: seconds of first calls, milliseconds of later ones, graphs."""

    name: str
    first: tuple[float, float]
    later_ratio: float
    later: float
    graphs: tuple[int, int]

    @property
    def first_ratio(self) -> float:
        """What the first call takes once mended, over that by hand."""
        return self.first[0] / self.first[1]

    def __str__(self) -> str:
        first = f"{self.first[0]:.1f} s / {self.first[1]:.1f} s = {self.first_ratio:.2f}"
        later = f"{self.later * 1e3:.1f} ms by hand, ratio {self.later_ratio:.3f}"
        return f"{self.name}: first {first}; later {later}; graphs {self.graphs}"

    @property
    def good(self) -> bool:
        """Return whether both ratios are within the limit."""
        return max(self.first_ratio, self.later_ratio) <= LIMIT


class Compiled:
    """One form of a case, compiled; the old one is mended."""

    def __init__(self, case: Case, form: str) -> None:
        kind = case.kind(form, LARGE)
        self._model: Module = kind.build().eval()
        self._settings = case.settings if form == "fixed" else {}
        self.inputs = kind.layouts()
        self.backend = CountingBackend("inductor")
        start = now()
        if form == "before":
            bcmend.patch(self._model)
        self._call: Callable[..., Any] = torch.compile(
            self._model, backend=self.backend, fullgraph=True
        )
        self(self.inputs[0])
        self.first = now().since(start).processor

    def __call__(self, arguments: dict[str, Any]) -> Any:
        with torch.no_grad(), torch._dynamo.config.patch(**self._settings):
            return self._call(**arguments)

    def all_layouts(self) -> None:
        """Call with each layout."""
        for each in self.inputs:
            self(each)

    def close(self) -> None:
        """Leave nothing patched."""
        bcmend.unpatch(self._model)


def _first(case: Case, form: str) -> float:
    torch._dynamo.reset()
    compiled = Compiled(case, form)
    compiled.close()
    return compiled.first


def measure(case: Case) -> Found:
    """Measure a case."""
    taken: dict[str, list[float]] = {form: [] for form in FORMS}
    for number in range(_FIRST_CALLS):
        for form in FORMS[:: -1 if number % 2 else 1]:
            taken[form].append(_first(case, form))
    torch._dynamo.reset()
    mended, fixed = (Compiled(case, form) for form in FORMS)
    ratio, later = cpu_ratio(mended.all_layouts, fixed.all_layouts, rounds=_ROUNDS)
    graphs = mended.backend.graphs, fixed.backend.graphs
    mended.close()
    fixed.close()
    torch._dynamo.reset()
    gc.collect()
    return Found(case.name, (min(taken["before"]), min(taken["fixed"])), ratio, later, graphs)


def table(found: Sequence[Found]) -> Table:
    """One row for each case."""
    shown = Table(title=f"torch {torch.__version__}", box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_column("case")
    for heading in ("first, s", "by hand", "ratio", "later, ms", "by hand", "ratio", "graphs"):
        shown.add_column(heading, justify="right")
    for each in found:
        colours = [
            "green" if one <= LIMIT else "red" for one in (each.first_ratio, each.later_ratio)
        ]
        shown.add_row(
            each.name,
            f"{each.first[0]:.1f}",
            f"{each.first[1]:.1f}",
            f"[{colours[0]}]{each.first_ratio:.2f}[/]",
            f"{each.later_ratio * each.later * 1e3:.1f}",
            f"{each.later * 1e3:.1f}",
            f"[{colours[1]}]{each.later_ratio:.3f}[/]",
            f"{each.graphs[0]}, {each.graphs[1]}",
        )
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints, and returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.before", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="such as mask-by-sample")
    names = parser.parse_args(arguments).names
    if unknown := set(names) - {case.name for case in CASES}:
        parser.error(f"no case called {min(unknown)}")
    torch._logging.set_logs(dynamo=logging.ERROR)
    found = []
    with torch._inductor.config.patch(**_SETTINGS), Console(stderr=True).status("") as status:
        torch.compile(torch.sin)(torch.ones(3))  # what only the first of a process pays for
        for case in CASES:
            if not names or case.name in names:
                status.update(case.name)
                found.append(measure(case))
                status.console.print(found[-1], markup=False)  # a run may be cut off
    console = Console()
    console.width = max(console.width, TABLE_WIDTH)
    console.print(table(found))
    return 0 if all(each.good for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
