"""`python -m corpus.libraries`: public functions and modules of libraries, stock and mended.

Each is called as the examples of its docstring call it, or with guessed arguments, in a process of
its own with a limit of time. What breaks with stock torch.compile is mended. With `--resume FILE`
results are kept there, a line each, and what has one is not run again; a run goes on in the order
of the sample, so many cases that eager execution accepts, or so many minutes.

Exit code 0 when nothing that was measured differs from eager execution or was stopped, 1 when
something does, 2 for a wrong command line.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

import torch
import torch._dynamo
from rich.console import Console

from corpus.architectures.isolation import Limits, OnStage, Stopped, isolated
from corpus.libraries.measure import measure
from corpus.libraries.names import prepare, sampled
from corpus.libraries.page import page, summary
from corpus.libraries.record import Outcome, Record, read_records
from corpus.libraries.registry import LIBRARIES, Library
from corpus.lines import append, latest

BACKENDS: Final = ("eager", "inductor")
_BAD: Final = (Outcome.DIFFERS, Outcome.STOPPED)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line, or exit 2 with one line that says what is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m corpus.libraries",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("library", metavar="LIBRARY", choices=LIBRARIES, help=", ".join(LIBRARIES))
    parser.add_argument("names", nargs="*", metavar="NAME", help="functions and classes alone")
    parser.add_argument("--list", action="store_true", help="print the names, in their order")
    parser.add_argument("--backend", choices=BACKENDS, default="eager")
    parser.add_argument("--cases", type=int, default=40, help="that are called; 40")
    parser.add_argument("--minutes", type=float, default=20.0, help="begin none after that; 20")
    parser.add_argument("--seconds", type=float, default=120.0, help="for one case; 120")
    parser.add_argument(
        "--broken", type=Path, metavar="FILE", help="only what breaks with stock there"
    )
    parser.add_argument("--resume", type=Path, metavar="FILE", help="goes on behind this file")
    parser.add_argument(
        "--write", type=Path, metavar="PATH", help="the page, of all such files beside"
    )
    return parser.parse_args(arguments)


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out what libraries log and warn of in a block."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def run(name: str, backend: str, limits: Limits) -> Record:
    """Measure a case in a process of its own."""
    found = isolated(partial(_measured, name, backend), limits)
    if not isinstance(found, Stopped):
        return found
    why = f"{found.stage}: {found.reason}"
    is_ours = found.stage in ("stock", "mended")
    outcome = Outcome.STOPPED if is_ours else Outcome.NO_CALL
    return Record(name, backend, outcome, why=why, breaks=found.stage == "mended")


def _measured(name: str, backend: str, on_stage: OnStage) -> Record:
    torch.set_num_threads(1)
    with _quiet(), open("/dev/null", "w") as nowhere:
        sys.stdout = sys.stderr = nowhere
        return measure(name, backend, on_stage)


def measured_in_turn(
    names: Sequence[str], backend: str, limits: Limits, cases: int, end: float
) -> Iterator[Record]:
    """Yield the record of one case after another, until so many were called."""
    for name in names:
        if cases <= 0 or time.monotonic() > end:
            return
        record = run(name, backend, limits)
        cases -= record.outcome is not Outcome.NO_CALL
        yield record


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs, prints, and returns the exit code."""
    parsed = parse(arguments)
    with _quiet():
        return _looked_at(parsed)


def _looked_at(parsed: argparse.Namespace) -> int:
    library = LIBRARIES[parsed.library]
    prepare(library)
    console = Console()
    records = read_records(parsed.resume)
    names = _names(parsed, library, {each.key for each in records})
    if parsed.list:
        _say(console, "\n".join(names))
        return 0
    end = time.monotonic() + parsed.minutes * 60
    limits = Limits(seconds=parsed.seconds)
    for record in measured_in_turn(names, parsed.backend, limits, parsed.cases, end):
        records.append(record)
        if parsed.resume is not None:
            append(parsed.resume, record)
        if record.outcome is not Outcome.NO_CALL:
            _say(console, _line(record))
    records = latest(records)
    _say(console, summary(records))
    if parsed.write is not None:
        parsed.write.write_text(page(_of_libraries(parsed.resume)), encoding="utf-8")
    return 1 if any(each.outcome in _BAD for each in records) else 0


def _names(parsed: argparse.Namespace, library: Library, done: set[tuple[str, str]]) -> list[str]:
    names: list[str] = parsed.names
    if parsed.broken is not None:
        names = [each.name for each in read_records(parsed.broken) if each.breaks]
    names = names or sampled(library)
    return [each for each in names if (each, parsed.backend) not in done]


def _line(record: Record) -> str:
    seconds = f" {record.stock_seconds:.1f} -> {record.seconds:.1f} s" if record.seconds else ""
    refused = f" [{'; '.join(record.refusals)}]" if record.refusals else ""
    return f"{record.name}: {record.outcome}{seconds} {record.why}{refused}"


def _of_libraries(path: Path | None) -> dict[str, list[Record]]:
    """Return the records of each library, of files LIBRARY.jsonl in the folder of ``path``."""
    folder = Path() if path is None else path.parent
    files = {each: folder / f"{each}.jsonl" for each in LIBRARIES}
    return {
        f"{name} {version(LIBRARIES[name].distribution)}": read_records(file)
        for name, file in files.items()
        if file.exists()
    }


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
