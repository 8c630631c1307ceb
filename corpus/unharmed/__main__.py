"""`python -m corpus.unharmed`: patches models that need no mending, and prints a table.

Each is captured whole by stock `torch.compile`. Mended, it has to be one graph too, show what the
eager one shows (with `--backend counting` to the bit), and take less than 5 % of its first compiled
call to patch. That call is one of the model as it is, with a cache that was empty when the command
began; patching is done three times, of which the quickest counts.

Exit code 0 when none is worse, 1 when one is, 2 for a wrong command line.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
import transformers
from rich import box
from rich.console import Console
from rich.table import Table
from torch._inductor.utils import fresh_cache

from corpus.in_turn import dynamo_quiet, measure_in_turn, write_document
from corpus.models.case import ModelCase
from corpus.models.measure import BACKENDS, worse_outputs
from corpus.unharmed.measure import Comparison, compare, harm
from corpus.unharmed.registry import CASES

TABLE_WIDTH = 96  # a pipe has no width of its own, and rich then takes too few columns
Result = tuple[ModelCase, Comparison]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line, or exit 2 with one line that says what is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m corpus.unharmed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [case.name for case in CASES]
    parser.add_argument("names", nargs="*", metavar="NAME", help="a class, such as BertModel")
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default="inductor",
        help="with counting, which compiles nothing, outputs are compared to the bit",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the measurements there")
    parsed = parser.parse_args(arguments)
    unknown = [name for name in parsed.names if name not in names]
    if unknown:
        parser.error(f"no model called {', '.join(unknown)}; there are {', '.join(names)}")
    return parsed


_HEADINGS = (
    "stock\ngraphs",
    "mended\ngraphs",
    "same\noutput",
    "patch\nms",
    "first\ncall s",
    "share",
    "worse",
)


def _cells(case: ModelCase, found: Comparison) -> tuple[str, ...]:
    measured = found.measurement
    same = measured.mended_error is None and not worse_outputs(measured)
    return (
        case.name,
        str(measured.stock_graphs),
        str(measured.mended_graphs),
        "[green]yes[/]" if same else "[red]no[/]",
        f"{found.patch_seconds * 1e3:.0f}",
        f"{found.first_call_seconds:.1f}",
        f"{found.share:.1%}",
        "[red]yes[/]" if harm(case, found) else "[green]no[/]",
    )


def table(results: Sequence[Result], backend: str) -> Table:
    """One row for each model; the first call is one with the back end `backend`."""
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    shown = Table(title=f"{versions}, back end {backend}", box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_column("model", no_wrap=True)
    for heading in _HEADINGS:
        shown.add_column(heading, justify="right")
    for case, found in results:
        shown.add_row(*_cells(case, found))
    return shown


def compare_all(cases: Sequence[ModelCase], backend: str, progress: Console) -> list[Result]:
    """Measure each model in turn and say on ``progress`` which stage of which one is running."""
    return measure_in_turn(
        cases, lambda case, on_stage: compare(case, backend=backend, on_stage=on_stage), progress
    )


def write_json(results: Sequence[Result], path: Path) -> None:
    """Write the measurements and the versions that they were made with."""
    write_document([found.to_dict() | {"harm": harm(case, found)} for case, found in results], path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints, and returns the exit code."""
    parsed = parse(arguments)
    cases = [case for case in CASES if not parsed.names or case.name in parsed.names]
    with dynamo_quiet(logging.CRITICAL), fresh_cache():
        results = compare_all(cases, parsed.backend, Console(stderr=True))
    console = Console()
    console.width = max(console.width, TABLE_WIDTH)
    console.print(table(results, parsed.backend))
    if parsed.json is not None:
        write_json(results, parsed.json)
    worse = [(case.name, reason) for case, found in results for reason in harm(case, found)]
    console.print(f"{len(results) - len({name for name, _ in worse})} of {len(results)} unharmed")
    for name, reason in worse:
        console.print(f"{name}: {reason}", style="red", markup=False, soft_wrap=True)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
