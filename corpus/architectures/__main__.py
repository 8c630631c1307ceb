"""`python -m corpus.architectures`: every architecture of transformers, small, stock and mended.

Each is built from its configuration class by general rules. Each model and mode runs in a process
of its own, with limits of time and of memory; what crashes or takes too long is a row. With
`--resume FILE` results are kept there, a line each, and what has one is not run again. Made for
transformers 5.4.0; `python -m corpus.transformers5 --help` says how it is installed beside.

Exit code 0 when each model that was measured is one graph and equal, 1 when one is not, 2 for a
wrong command line.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from rich.console import Console

from corpus.architectures.building import NotBuildable, architecture
from corpus.architectures.classes import model_types, preload
from corpus.architectures.isolation import Limits, OnStage, Stopped, isolated
from corpus.architectures.page import page, summary
from corpus.architectures.record import (
    MEASURED,
    NO_REFERENCE,
    NOT_BUILT,
    STOPPED,
    Record,
    read_records,
)
from corpus.lines import append, latest
from corpus.transformers5.measure import BACKENDS, MODES, measure

_BUILDING: Final = Limits(seconds=120.0, memory=10 << 30)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line, or exit 2 with one line that says what is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m corpus.architectures",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="a model type, such as bart")
    parser.add_argument("--list", action="store_true", help="build each, and say which cannot be")
    parser.add_argument("--mode", choices=MODES, help="one mode only")
    parser.add_argument("--backend", choices=BACKENDS, default="inductor")
    parser.add_argument(
        "--breaks",
        dest="fullgraph",
        action="store_false",
        help="without fullgraph=True; graphs are counted",
    )
    parser.add_argument("--fullgraph", action="store_true", default=True, help="the default")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="goes on behind this file")
    parser.add_argument("--write", type=Path, metavar="PATH", help="the page of the documentation")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin none after that")
    parser.add_argument("--seconds", type=float, default=600.0, help="for one model and mode")
    parsed = parser.parse_args(arguments)
    known = model_types()
    unknown = [name for name in parsed.names if name not in known]
    if unknown:
        parser.error(f"no architecture called {', '.join(unknown)}")
    parsed.names = parsed.names or known
    return parsed


def _quiet() -> None:
    """Have models and compilers say nothing: what they log is compared, not shown."""
    warnings.simplefilter("ignore")
    for name in ("torch._dynamo", "torch._inductor", "torch.fx.experimental.symbolic_shapes"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def run(name: str, mode: str, backend: str, *, fullgraph: bool, limits: Limits) -> Record:
    """Measure an architecture in a process of its own."""
    work = partial(_measured, name, mode, backend, fullgraph)
    found = isolated(work, limits)
    if isinstance(found, Stopped):
        outcome = NO_REFERENCE if found.stage == "eager" else STOPPED
        why = f"{found.stage}: {found.reason}"
        return Record(name, mode, backend, fullgraph, outcome, why=why)
    return found


def _measured(name: str, mode: str, backend: str, fullgraph: bool, on_stage: OnStage) -> Record:
    _quiet()
    torch.set_num_threads(1)  # a thread that waits for others spends the time of processors too
    try:
        built = architecture(name, training=mode == "train")
    except NotBuildable as error:
        return Record(name, mode, backend, fullgraph, NOT_BUILT, why=str(error))
    found = measure(built, mode, backend=backend, fullgraph=fullgraph, on_stage=on_stage)
    model = built.model.__name__
    return Record(name, mode, backend, fullgraph, MEASURED, model, measurement=found)


def built(name: str) -> tuple[bool, str]:
    """Return whether a small model can be built and called, with its arguments or the reason."""
    found = isolated(partial(_built, name), _BUILDING)
    return found if not isinstance(found, Stopped) else (False, found.reason)


def _built(name: str, on_stage: OnStage) -> tuple[bool, str]:
    _quiet()
    try:
        found = architecture(name)
    except NotBuildable as error:
        return False, str(error)
    shapes = [f"{key} {list(value.shape)}" for key, value in found.given.items()]
    return True, f"{found.model.__name__}: {', '.join(shapes)}"


def _list(names: Sequence[str], console: Console) -> int:
    count = 0
    for name in names:
        is_built, told = built(name)
        count += is_built
        mark = "built" if is_built else "not built"
        console.print(f"{name}: {mark}: {told}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"{count} of {len(names)} can be built")
    return 0


def _pairs(parsed: argparse.Namespace, done: set[tuple[str, str, str]]) -> list[tuple[str, str]]:
    modes = [mode for mode in MODES if parsed.mode in (None, mode)]
    pairs = [(name, mode) for name in parsed.names for mode in modes]
    return [(name, mode) for name, mode in pairs if (name, mode, parsed.backend) not in done]


def measured_in_turn(
    pairs: Sequence[tuple[str, str]],
    measure_one: Callable[[str, str], Record],
    on_start: Callable[[str], None],
    end: float,
) -> Iterator[Record]:
    """Yield the record of each pair of a name and a mode; none is begun after ``end``."""
    for number, (name, mode) in enumerate(pairs, start=1):
        if time.monotonic() > end:
            return
        on_start(f"[{number}/{len(pairs)}] {name}, {mode}")
        yield measure_one(name, mode)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs, prints, and returns the exit code."""
    parsed = parse(arguments)
    _quiet()
    preload()
    console = Console()
    if parsed.list:
        return _list(parsed.names, console)
    records = read_records(parsed.resume)
    pairs = _pairs(parsed, {each.key for each in records})
    limits = Limits(seconds=parsed.seconds)
    measure_one = partial(_run_with, parsed, limits)
    end = time.monotonic() + parsed.minutes * 60
    with Console(stderr=True).status("starting") as status:
        for record in measured_in_turn(pairs, measure_one, status.update, end):
            records.append(record)
            if parsed.resume is not None:
                append(parsed.resume, record)
            if record.obstacle:
                _say(console, f"{record.name}, {record.mode}: {record.obstacle}")
    return _end(parsed, latest(records), console)


def _run_with(parsed: argparse.Namespace, limits: Limits, name: str, mode: str) -> Record:
    return run(name, mode, parsed.backend, fullgraph=parsed.fullgraph, limits=limits)


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _end(parsed: argparse.Namespace, records: Sequence[Record], console: Console) -> int:
    """Print the summary, write the page, and return the exit code."""
    registered = len(model_types())
    for line in summary(records, registered):
        _say(console, line)
    if parsed.write is not None:
        text = page(records, registered, transformers.__version__)
        parsed.write.write_text(text, encoding="utf-8")
    return 0 if all(each.is_whole for each in records if each.outcome == MEASURED) else 1


if __name__ == "__main__":
    sys.exit(main())
