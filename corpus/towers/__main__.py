"""`python -m corpus.towers`: measures small modules that read numbers out of tensors.

Each kind of code goes through twenty calls in at least five layouts (so many images, clips or texts
of such sizes), in a process of its own: as it is and mended, each without and with fullgraph=True,
and by hand, with its numbers read before the call. `graphs` are those that run in a call, from the
fewest to the most; `compiled` are all that the twenty calls compile; `oper.` are operations in the
graphs of the first call, few where Dynamo leaves code to Python. `whole` tells whether each call is
one graph under fullgraph=True, equal to eager; what it raises there is among the details. `later`
is a later mended call over one by hand.

Exit code 0 when what is mended is equal to eager execution, 1 when it is not, or does not run, 2
for a wrong command line.
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import Final

import torch
from rich import box
from rich.console import Console
from rich.table import Table

from corpus.architectures.isolation import Limits, Stopped, isolated
from corpus.in_turn import dynamo_quiet
from corpus.towers.kind import Kind
from corpus.towers.measure import BACKENDS, Measurement, OnStage, Way, measure
from corpus.towers.page import compiled, graphs, page, whole
from corpus.towers.record import append, read
from corpus.towers.registry import KINDS

TABLE_WIDTH: Final = 124
#: Seconds that one kind may take.
SECONDS: Final = {"counting": 300.0, "inductor": 1200.0}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line, or exit 2 with one line that says what is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m corpus.towers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [kind.name for kind in KINDS]
    parser.add_argument("names", nargs="*", metavar="NAME", help="such as rotary-positions")
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default="counting",
        help="counting compiles nothing, and outputs are compared to the bit",
    )
    parser.add_argument("--train", action="store_true", help="in training, with optimizer steps")
    parser.add_argument("--later", action="store_true", help="time later calls, beside by hand")
    parser.add_argument("--minutes", type=float, help="begin with no kind after so many minutes")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="add a line for each kind; go on behind FILE"
    )
    parser.add_argument(
        "--write", type=Path, metavar="PATH", help="write all of FILE as a page; measure nothing"
    )
    parser.add_argument(
        "--details", action="store_true", help="every difference, error and refused site"
    )
    parsed = parser.parse_args(arguments)
    unknown = [name for name in parsed.names if name not in names]
    if unknown:
        parser.error(f"no kind called {', '.join(unknown)}; there are {', '.join(names)}")
    if parsed.write is not None and (parsed.out is None or not parsed.out.exists()):
        parser.error("--write needs --out FILE with measurements")
    return parsed


def _operators(way: Way | None) -> str:
    return "" if way is None or not way.ran else str(way.operators)


def _columns(way: Way | None) -> tuple[str, ...]:
    return graphs(way), compiled(way), _operators(way)


def _is_whole(way: Way | None) -> str:
    if way is None:
        return ""
    return "[green]yes[/]" if way.is_whole else "[red]no[/]"


def _row(found: Measurement) -> tuple[str, ...]:
    ways = found.ways
    return (
        found.name,
        *_columns(ways.get("stock")),
        _is_whole(ways.get("stock, fullgraph")),
        *_columns(ways.get("mended")),
        _is_whole(ways.get("mended, fullgraph")),
        "[red]no[/]" if found.faults else "[green]yes[/]",
        *_columns(ways.get("by hand")),
        "" if found.later_call is None else f"{found.later_call:.2f}",
    )


_HEADINGS: Final = (
    *("stock\ngraphs", "com-\npiled", "oper.", "whole"),
    *("mended\ngraphs", "com-\npiled", "oper.", "whole", "as\neager"),
    *("by\nhand", "com-\npiled", "oper.", "later"),
)


def table(results: Sequence[Measurement], backend: str, mode: str) -> Table:
    """One row for each kind."""
    title = f"torch {torch.__version__}, {backend}, {mode}"
    shown = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_column("kind", no_wrap=True)
    for heading in _HEADINGS:
        shown.add_column(heading, justify="right")
    for found in results:
        shown.add_row(*_row(found))
    return shown


def _isolated(kind: Kind, mode: str, backend: str, timed: bool) -> Measurement:
    def work(on_stage: OnStage) -> Measurement:
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        return measure(kind, mode, backend=backend, timed=timed, on_stage=on_stage)

    found = isolated(work, Limits(seconds=SECONDS[backend]))
    if isinstance(found, Stopped):
        return Measurement(kind.name, mode, backend, stopped=f"{found.stage}: {found.reason}")
    return found


def measure_all(
    kinds: Sequence[Kind], parsed: argparse.Namespace, progress: Console
) -> Iterator[Measurement]:
    """Measure each kind that the file has not, and yield what is known of all."""
    mode = "train" if parsed.train else "eval"
    known = read(parsed.out)
    end = None if parsed.minutes is None else monotonic() + 60 * parsed.minutes
    with progress.status("starting") as status:
        for number, kind in enumerate(kinds, start=1):
            found = known.get((kind.name, mode, parsed.backend))
            if found is None:
                if end is not None and monotonic() > end:
                    continue
                status.update(f"[{number}/{len(kinds)}] {kind.name}")
                found = _isolated(kind, mode, parsed.backend, parsed.later)
                append(parsed.out, found)
            yield found


def _errors(found: Measurement) -> list[str]:
    """Return what each way has raised that eager execution has not."""
    return [f"{name}: {way.error}" for name, way in found.ways.items() if way.error]


def _summary(results: Sequence[Measurement]) -> str:
    counts = ", ".join(
        f"{whole(results, way)} {name}"
        for name, way in (
            ("stock", "stock, fullgraph"),
            ("mended", "mended, fullgraph"),
            ("by hand", "by hand"),
        )
    )
    return f"whole, of {len(results)}: {counts}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints, and returns the exit code."""
    parsed = parse(arguments)
    if parsed.write is not None:
        known = [*read(parsed.out).values()]
        parsed.write.write_text(page(known, KINDS, torch.__version__.partition("+")[0]), "utf-8")
        return 0
    kinds = [kind for kind in KINDS if not parsed.names or kind.name in parsed.names]
    with dynamo_quiet(logging.CRITICAL):
        results = list(measure_all(kinds, parsed, Console(stderr=True)))
    console = Console()
    console.width = max(console.width, TABLE_WIDTH)
    console.print(table(results, parsed.backend, "train" if parsed.train else "eval"))
    console.print(_summary(results), markup=False)
    faulty = [each for each in results if each.faults]
    for found in faulty:
        told = found.faults if parsed.details else found.faults[:1]
        for line in told:
            console.print(f"{found.name}: {line}", style="red", markup=False, soft_wrap=True)
    if parsed.details:
        for found in results:
            for line in (*_errors(found), *found.refusals):
                console.print(f"{found.name}: {line}", markup=False, soft_wrap=True)
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main())
