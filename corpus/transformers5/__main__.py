"""`python -m corpus.transformers5`: runs each model in both modes and prints a table.

Needs transformers 5.4.0, which is not the version that the other figures of bcmend are made with:

    pip install --target HERE --no-deps transformers==5.4.0 "huggingface_hub>=1.5,<2" \\
        "tokenizers>=0.22,<=0.23.0" httpx httpcore h11 anyio sniffio certifi idna typer
    PYTHONPATH=HERE:. python -m corpus.transformers5

Exit code 0 when each model is as good as its case says, 1 when one is not, 2 for a wrong command
line or another version of transformers.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Final

import torch
import transformers
from rich import box
from rich.console import Console
from rich.table import Table

from corpus.configured.case import Case
from corpus.in_turn import dynamo_quiet
from corpus.transformers5.measure import BACKENDS, MODES, Measurement, measure
from corpus.transformers5.registry import CASES

VERSION: Final = "5.4.0"
TABLE_WIDTH: Final = 110

Result = tuple[Case, Measurement]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line, or exit 2 with one line that says what is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m corpus.transformers5",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [case.name for case in CASES]
    parser.add_argument("names", nargs="*", metavar="NAME", help="a class, such as BartModel")
    parser.add_argument("--mode", choices=MODES, help="one mode only")
    parser.add_argument("--backend", choices=BACKENDS, default="inductor")
    parser.add_argument(
        "--breaks", action="store_true", help="without fullgraph=True; graphs are counted"
    )
    parser.add_argument("--details", action="store_true", help="every refused site and difference")
    parsed = parser.parse_args(arguments)
    unknown = [name for name in parsed.names if name not in names]
    if unknown:
        parser.error(f"no model called {', '.join(unknown)}; there are {', '.join(names)}")
    if transformers.__version__ != VERSION:
        parser.error(f"needs transformers {VERSION}, and this is {transformers.__version__}")
    return parsed


def _row(case: Case, found: Measurement) -> tuple[str, ...]:
    whole = "[red]no[/]" if found.error else str(found.graphs)
    same = "" if found.error else "[red]no[/]" if found.differences else "[green]yes[/]"
    stock = str(found.stock_graphs) if found.stock_error is None else "fails"
    obstacle = found.error or next(iter(found.differences), "")
    seconds = (found.first_call, found.first_call_cpu, found.later_call, found.later_call_cpu)
    ratios = [f"{each:.2f}" if each else "" for each in seconds]
    told = case.waits.get(found.mode) or obstacle
    return case.name, found.mode, stock, whole, same, *ratios, told


def table(results: Sequence[Result], backend: str) -> Table:
    """One row for each model and mode."""
    title = f"transformers {transformers.__version__}, torch {torch.__version__}, {backend}"
    shown = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_column("model", no_wrap=True)
    shown.add_column("mode")
    shown.add_column("stock\ngraphs", justify="right")
    shown.add_column("graphs\nmended", justify="right")
    shown.add_column("same as\neager", justify="right")
    shown.add_column("first call\n/ stock", justify="right")
    shown.add_column("of pro-\ncessors", justify="right")
    shown.add_column("later call\n/ stock", justify="right")
    shown.add_column("of pro-\ncessors", justify="right")
    shown.add_column("what stands in the way", max_width=36)
    for case, found in results:
        shown.add_row(*_row(case, found))
    return shown


def failures(results: Sequence[Result]) -> list[str]:
    """What is not as its case says, in one line each."""
    return [
        f"{case.name}, {found.mode}: {_failure(case, found)}"
        for case, found in results
        if found.is_whole == (found.mode in case.waits)
    ]


def _failure(case: Case, found: Measurement) -> str:
    if found.is_whole:
        return "is one graph, and its case says that it is none"
    return found.error or next(iter(found.differences), f"{found.graphs} graphs")


def _tell(console: Console, found: Measurement) -> None:
    for line in (*found.differences, *found.refusals):
        console.print(f"{found.name}, {found.mode}: {line}", markup=False, soft_wrap=True)


def _pairs(parsed: argparse.Namespace) -> list[tuple[Case, str]]:
    cases = [case for case in CASES if not parsed.names or case.name in parsed.names]
    return [(case, mode) for case in cases for mode in MODES if parsed.mode in (None, mode)]


def measure_all(
    pairs: Sequence[tuple[Case, str]],
    backend: str,
    on_start: Callable[[str], None],
    *,
    fullgraph: bool = True,
) -> list[Result]:
    """Measures each pair of a model and a mode; `on_start` is told which one begins."""
    results = []
    for number, (case, mode) in enumerate(pairs, start=1):
        on_start(f"[{number}/{len(pairs)}] {case.name}, {mode}")
        results.append((case, measure(case, mode, backend=backend, fullgraph=fullgraph)))
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs, prints, and returns the exit code."""
    parsed = parse(arguments)
    with dynamo_quiet(logging.CRITICAL), Console(stderr=True).status("starting") as status:
        results = measure_all(
            _pairs(parsed), parsed.backend, status.update, fullgraph=not parsed.breaks
        )
    console = Console()
    console.width = max(console.width, TABLE_WIDTH)
    console.print(table(results, parsed.backend))
    if parsed.details:
        for _, found in results:
            _tell(console, found)
    whole = {case.name for case, _ in results} - {
        case.name for case, found in results if not found.is_whole
    }
    console.print(f"one graph, equal to eager, in each mode tried: {len(whole)} models")
    wrong = failures(results)
    for line in wrong:
        console.print(line, style="red", markup=False, soft_wrap=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
