"""`python -m corpus.models`: measures the corpus and prints a table, one row per model.

Exit code 0 when every model is at least as good as its case requires, 1 when one is worse, 2 for
a wrong command line.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from rich import box
from rich.console import Console
from rich.table import Table

from corpus.in_turn import dynamo_quiet, measure_in_turn, write_document
from corpus.models.case import ModelCase
from corpus.models.measure import (
    BACKENDS,
    Measurement,
    failures,
    measure,
    worse_lines,
    worse_outputs,
)
from corpus.models.registry import CASES

TABLE_WIDTH = 96  # a pipe has no width of its own, and rich then takes too few columns
Result = tuple[ModelCase, Measurement]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line, or exit 2 with one line that says what is wrong."""
    parser = argparse.ArgumentParser(prog="python -m corpus.models", description=__doc__)
    names = [case.name for case in CASES]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(names)}")
    parser.add_argument("--backend", choices=BACKENDS, default="inductor")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the measurements there")
    parsed = parser.parse_args(arguments)
    unknown = [name for name in parsed.names if name not in names]
    if unknown:
        parser.error(f"no model called {', '.join(unknown)}")
    return parsed


_HEADINGS = (
    "full\ngraph",
    "same\noutput",
    "same\nlog",
    "sites",
    "stock\ns",
    "mended\ns",
    "patch\ns",
)


def _yes_or_no(good: bool) -> str:
    return "[green]yes[/]" if good else "[red]no[/]"


def _same_output(measurement: Measurement) -> str:
    if measurement.mended_error is not None:
        return _yes_or_no(False)
    if measurement.output_differences and not worse_outputs(measurement):
        return "as stock"
    return _yes_or_no(not measurement.output_differences)


def _same_log(measurement: Measurement) -> str:
    if measurement.mended_error is not None:
        return _yes_or_no(False)
    if measurement.line_differences and not worse_lines(measurement):
        return "as stock"
    return _yes_or_no(not measurement.line_differences)


def table(results: Sequence[Result], backend: str) -> Table:
    """One row per measured model; figures worse than required are red."""
    title = f"Graph breaks, torch {torch.__version__}, {backend} back end"
    shown = Table(title=title, show_footer=True, box=box.SIMPLE_HEAD, pad_edge=False)
    stock = sum(measurement.stock_breaks for _, measurement in results)
    mended = sum(measurement.mended_breaks for _, measurement in results)
    shown.add_column("model", footer="all", no_wrap=True)
    shown.add_column("stock\nbreaks", justify="right", footer=str(stock))
    shown.add_column("mended\nbreaks", justify="right", footer=str(mended))
    for heading in _HEADINGS:
        shown.add_column(heading, justify="right")
    for case, measurement in results:
        shown.add_row(*_cells(case, measurement))
    return shown


def _cells(case: ModelCase, measurement: Measurement) -> tuple[str, ...]:
    ran = measurement.mended_error is None
    colour = "green" if 0 <= measurement.mended_breaks <= case.required_breaks else "red"
    return (
        case.name,
        str(measurement.stock_breaks),
        f"[{colour}]{measurement.mended_breaks}[/]" if ran else "[red]failed[/]",
        _yes_or_no(measurement.fullgraph_error is None),
        _same_output(measurement),
        _same_log(measurement),
        str(measurement.mended_sites),
        f"{measurement.stock_seconds:.1f}",
        f"{measurement.mended_seconds:.1f}",
        f"{measurement.patch_seconds:.2f}",
    )


def measure_all(cases: Sequence[ModelCase], backend: str, progress: Console) -> list[Result]:
    """Measures each case in turn and says on `progress` which stage of which model is running."""
    return measure_in_turn(
        cases,
        lambda case, on_stage: measure(case, backend=backend, on_stage=on_stage),
        progress,
    )


def write_json(results: Sequence[Result], path: Path) -> None:
    """Writes the measurements and the versions that they were made with."""
    models = [
        found.to_dict() | {"required_breaks": case.required_breaks} for case, found in results
    ]
    write_document(models, path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints, and returns the exit code."""
    parsed = parse(arguments)
    cases = [case for case in CASES if not parsed.names or case.name in parsed.names]
    with dynamo_quiet(logging.ERROR):
        results = measure_all(cases, parsed.backend, Console(stderr=True))
    console = Console()
    console.width = max(console.width, TABLE_WIDTH)
    console.print(table(results, parsed.backend))
    if parsed.json is not None:
        write_json(results, parsed.json)
    worse = [(case.name, reason) for case, found in results for reason in failures(case, found)]
    for name, reason in worse:
        console.print(f"{name}: {reason}", style="red", markup=False, soft_wrap=True)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
