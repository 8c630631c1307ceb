"""`python -m bench`: prints every ratio as a table, and then the Python calls that patching costs.

The exit code is 1 when a ratio exceeds its limit.
"""

from __future__ import annotations

import logging
import sys

import torch
from rich import box
from rich.console import Console
from rich.table import Table

from bench import python_calls
from bench.ratios import ALL, Ratio

TABLE_WIDTH = 96  # a pipe has no width of its own, and rich then takes too few columns


def measured() -> list[Ratio]:
    """Takes every ratio in turn and says on standard error which one is being taken."""
    with Console(stderr=True).status("starting") as status:
        taken = []
        for number, take in enumerate(ALL, start=1):
            status.update(f"[{number}/{len(ALL)}] {take.__name__}".replace("_", " "))
            taken.append(take())
    return taken


def table(ratios: list[Ratio]) -> Table:
    """One row per ratio; milliseconds."""
    shown = Table(title=f"torch {torch.__version__}", box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_column("what")
    for heading in ("ms", "beside ms", "ratio", "limit"):
        shown.add_column(heading, justify="right")
    for ratio in ratios:
        colour = "green" if ratio.good else "red"
        shown.add_row(
            ratio.name,
            f"{ratio.measured * 1e3:.3f}",
            f"{ratio.baseline * 1e3:.3f}",
            f"[{colour}]{ratio.value:.3f}[/]",
            f"{ratio.limit:g}",
        )
    return shown


def main() -> int:
    """Measures, prints, and returns the exit code."""
    torch._logging.set_logs(dynamo=logging.ERROR)
    ratios = measured()
    console = Console()
    console.width = max(console.width, TABLE_WIDTH)
    console.print(table(ratios))
    python_calls.main([])
    return 0 if all(ratio.good for ratio in ratios) else 1


if __name__ == "__main__":
    sys.exit(main())
