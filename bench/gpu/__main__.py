"""`python -m bench.gpu [PROGRAM...]`: programs on a GPU, eager, stock and mended, as a table.

Each program runs in both forms, each in a fresh process with empty caches, with and without CUDA
graphs. Exit code 0 when every mended program is one graph in which nothing differs from eager
execution beyond its tolerance, 1 when one is not, 2 where there is no GPU.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch
from rich import box
from rich.console import Console
from rich.table import Table

from bench.gpu.measure import FORMS, MODES, Measurement
from bench.gpu.programs import PROGRAMS, program_named
from corpus.lines import append

TABLE_WIDTH = 110  # a pipe has no width of its own, and rich then takes too few columns


def measured_apart(name: str, form: str, timeout: float) -> list[Measurement]:
    """What a process of its own measures, a value for each mode; an error is told, not raised."""
    with tempfile.TemporaryDirectory() as caches:
        environment = os.environ | {
            "TORCHINDUCTOR_CACHE_DIR": caches,
            "TRITON_CACHE_DIR": f"{caches}/triton",
        }
        command = [sys.executable, "-m", "bench.gpu.measure", name, form]
        given: dict[str, Any] = {"env": environment, "text": True, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, stdout=subprocess.PIPE, **given) as process:
            try:
                written, said = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                written, _ = process.communicate()
                said = f"no end within {timeout:g} s"
    found = [Measurement(**json.loads(line)) for line in written.splitlines() if line[:1] == "{"]
    if process.returncode:
        lines = said.strip().splitlines()
        found.append(_failed(name, form, MODES[len(found)], "\n".join(lines[-12:]) or "no message"))
    return found


def _failed(name: str, form: str, mode: str, error: str) -> Measurement:
    none = float("nan")
    return Measurement(name, form, mode, 0, none, none, none, 0, 0, none, error)


def table(measurements: Sequence[Measurement]) -> Table:
    """One row for each program, form and mode."""
    title = f"torch {torch.__version__}, {torch.cuda.get_device_name()}"
    shown = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("program", "mode", "form"):
        shown.add_column(heading)
    for heading in (
        "graphs",
        "first\ns",
        "later\nms",
        "eager\nms",
        "eager\n/ later",
        "waits",
        "eager\nwaits",
        "difference",
    ):
        shown.add_column(heading, justify="right")
    for each in measurements:
        shown.add_row(
            each.program,
            each.mode,
            each.form,
            str(each.graphs) if each.error is None else "fails",
            "" if each.first is None else f"{each.first:.1f}",
            f"{each.later * 1e3:.2f}",
            f"{each.eager * 1e3:.2f}",
            f"{each.eager / each.later:.2f}",
            str(each.waits),
            str(each.eager_waits),
            f"{each.difference:.1e}",
        )
    return shown


def is_good(measurement: Measurement) -> bool:
    """Return whether a mended program is one graph, as good as eager execution."""
    if measurement.form != "mended":
        return True
    tolerance = program_named(measurement.program).tolerance
    graphs = 1 if measurement.error is None else 0
    return measurement.graphs == graphs == 1 and measurement.difference <= tolerance


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__)
    names = [each.name for each in PROGRAMS]
    parser.add_argument("names", nargs="*", metavar="PROGRAM", help=", ".join(names))
    parser.add_argument("--json", type=Path, metavar="FILE", help="add a line for each there")
    parser.add_argument("--jobs", type=int, default=1, help="programs that compile side by side")
    parser.add_argument("--seconds", type=float, default=200, help="the longest that one may take")
    parsed = parser.parse_args(arguments)
    unknown = [name for name in parsed.names if name not in names]
    if unknown:
        parser.error(f"no program called {', '.join(unknown)}")
    parsed.names = parsed.names or names
    return parsed


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return the exit code."""
    parsed = parse(arguments)
    if not torch.cuda.is_available():
        print("no GPU that torch can use", file=sys.stderr)
        return 2
    found = []
    with ThreadPoolExecutor(parsed.jobs) as jobs:
        measuring = [
            jobs.submit(measured_apart, name, form, parsed.seconds)
            for name, form in itertools.product(parsed.names, FORMS)
        ]
        for one in itertools.chain.from_iterable(each.result() for each in as_completed(measuring)):
            said = f"{one.program}, {one.form}, {one.mode}: {one.error or 'measured'}"
            print(said, file=sys.stderr, flush=True)
            found.append(one)
            if parsed.json is not None:
                append(parsed.json, one)
    found.sort(key=lambda each: (parsed.names.index(each.program), each.mode, each.form))
    console = Console()
    console.width = max(console.width, TABLE_WIDTH)
    console.print(table(found))
    return 0 if all(map(is_good, found)) else 1


if __name__ == "__main__":
    sys.exit(main())
