"""`python -m bench.before [NAME ...]`: code as it was before a break was removed, beside the fix.

Prints, for each case of `corpus.before`: what the first call takes of all processors when the old
form is mended, `bcmend.patch` included, over that of the form fixed by hand; the same of later
calls; and how many graphs all calls compile. Where the fix computes in another way than the old
form, the same once more over what has all that the old form computes, written without a break.

Compiled by Inductor with its own settings, but that nothing comes out of a cache and that its
compilers are children, whose time is counted; what only the first compilation of a process pays for
has been paid. First calls are made in turn, and the least time of each counts; later calls go
through all layouts in turn. The exit code is 1 where a ratio is larger than its limit.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from rich import box
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn import Module

import bcmend
from bench.timing import cpu_ratio
from corpus.before.case import LARGE, Case
from corpus.before.registry import CASES
from corpus.models.measure import CountingBackend
from corpus.transformers5.measure import now

FIRST_LIMIT: Final = 1.05
LATER_LIMIT: Final = 1.02
TABLE_WIDTH: Final = 110
CASES_ARE_IN: Final = "corpus.before.registry"
_FIRST_CALLS: Final = 2
_ROUNDS: Final = 30
_SETTINGS: Final = {"force_disable_caches": True, "compile_threads": 1}


@dataclass(frozen=True, slots=True)
class Found:
    """What was measured of a case, the mended form beside another.

    Attributes:
        name: that of the case, and of the other form where that is not the fix.
        first: seconds of first calls, of both.
        later_ratio: what later calls take over those of the other form.
        later: milliseconds of a later call of the other form, through all layouts.
        graphs: how many each compiles in all.
    """

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
        """Return whether both ratios are within their limits."""
        return self.first_ratio <= FIRST_LIMIT and self.later_ratio <= LATER_LIMIT


class Compiled:
    """One form of a case, compiled for its first layout; the old one is mended."""

    def __init__(self, case: Case, form: str) -> None:
        kind = case.kind(form, LARGE)
        self._model: Module = kind.build().eval()
        self._settings = case.settings_of(form)
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


def imported_anew(name: str) -> Case:
    """Return the case of a name with modules of its own.

    Mending the old form changes methods that another form has as well.
    """
    package = Case.__module__.rpartition(".")[0]
    for each in [each for each in sys.modules if f"{each}.".startswith(f"{package}.")]:
        del sys.modules[each]
    found: Sequence[Case] = importlib.import_module(CASES_ARE_IN).CASES
    (case,) = (each for each in found if each.name == name)
    return case


def _first(name: str, form: str) -> float:
    torch._dynamo.reset()
    compiled = Compiled(imported_anew(name), form)
    compiled.close()
    return compiled.first


def measure(name: str, forms: Sequence[str]) -> list[Found]:
    """Measure a case in its forms, of which the first is "before"."""
    taken: dict[str, list[float]] = {form: [] for form in forms}
    for number in range(_FIRST_CALLS):
        for form in forms[:: -1 if number % 2 else 1]:
            taken[form].append(_first(name, form))
    torch._dynamo.reset()
    compiled = {}
    for form in forms:  # all of a form, before the modules of the next one are there
        compiled[form] = Compiled(imported_anew(name), form)
        compiled[form].all_layouts()
    mended, first = compiled["before"], {form: min(taken[form]) for form in forms}
    found = []
    for form in forms[1:]:
        other = compiled[form]
        ratio, later = cpu_ratio(mended.all_layouts, other.all_layouts, rounds=_ROUNDS)
        graphs = mended.backend.graphs, other.backend.graphs
        title = name if form == "fixed" else f"{name}, {form}"
        found.append(Found(title, (first["before"], first[form]), ratio, later, graphs))
    mended.close()
    torch._dynamo.reset()
    gc.collect()
    return found


def _doubled(x: Tensor) -> Tensor:
    return x * 2 if x.sum() > 0 else x


def _warm_up() -> None:
    torch.compile(torch.sin)(torch.ones(3))
    torch.compile(bcmend.patch(_doubled), fullgraph=True)(torch.ones(3))
    bcmend.unpatch(_doubled)


def table(found: Sequence[Found]) -> Table:
    """One row for each pair of forms."""
    shown = Table(title=f"torch {torch.__version__}", box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_column("case")
    for heading in ("first, s", "by hand", "ratio", "later, ms", "by hand", "ratio", "graphs"):
        shown.add_column(heading, justify="right")
    for each in found:
        colours = [
            "green" if one <= limit else "red"
            for one, limit in ((each.first_ratio, FIRST_LIMIT), (each.later_ratio, LATER_LIMIT))
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
    found: list[Found] = []
    with torch._inductor.config.patch(**_SETTINGS), Console(stderr=True).status("") as status:
        _warm_up()
        for case in CASES:
            if not names or case.name in names:
                status.update(case.name)
                measured = measure(case.name, case.forms)
                for each in measured:
                    status.console.print(each, markup=False)  # a run may be cut off
                found += measured
    console = Console()
    console.width = max(console.width, TABLE_WIDTH)
    console.print(table(found))
    return 0 if all(each.good for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
