"""``python -m tests.versions``: tests with every supported pair of a release of torch and a Python.

Makes an environment for each tested release with each Python that is here, installs the project
with the constraints of the release, and runs pytest there. Tests that are in the file of
``--resume`` are not run again; it gets a line for each test. Exits with 1 if a test has failed, or
an environment cannot be made.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from tests.versions.environments import ROOT, Environment, NotMade, given, made, pairs
from tests.versions.page import page, table
from tests.versions.record import FAILED, read
from tests.versions.recording import FILE

#: What is run unless paths are given: what says most of a release in a short time.
SAMPLE: Final = (
    "tests/liveness",
    "tests/dynamo/contract",
    "tests/integration/test_patterns.py::test_what_stays_in_pieces",
    "tests/integration/test_patterns.py::test_what_is_refused_fails_in_one_piece_as_stock_does",
)
#: Every run of a part takes the same one, whatever the commit: it goes on behind a file.
_SALT: Final = "versions:0"
_CACHES: Final = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line, or exit 2 with one line that says what is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.versions", description=__doc__)
    parser.add_argument("paths", nargs="*", metavar="PATH", help="what of the tests to run")
    parser.add_argument("--all", action="store_true", help="run the whole suite, not the sample")
    parser.add_argument(
        "--sample",
        type=int,
        default=1,
        metavar="N",
        help="with --all: one in N of the cases that compile a program, the same in each run",
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="for all pairs together")
    parser.add_argument("--jobs", type=int, default=1, help="processes of pytest-xdist")
    parser.add_argument(
        "--folder",
        type=Path,
        default=_CACHES / "bcmend-versions",
        help="where environments are made, outside of the checkout; %(default)s",
    )
    parser.add_argument(
        "--python",
        type=Path,
        nargs="+",
        default=[],
        metavar="EXECUTABLE",
        help="use these environments, and make none",
    )
    parser.add_argument("--resume", type=Path, metavar="FILE")
    parser.add_argument(
        "--stock", type=Path, metavar="FILE", help="what torch captures by itself, too; as --resume"
    )
    parser.add_argument("--write", type=Path, metavar="PAGE", help="the page of the documentation")
    parsed = parser.parse_args(arguments)
    if parsed.all and parsed.paths:
        parser.error("either paths or --all")
    if parsed.sample < 1 or (parsed.sample > 1 and not parsed.all):
        parser.error("--sample goes with --all, and is 1 or more")
    if parsed.folder.resolve().is_relative_to(ROOT):
        parser.error(f"--folder has to be outside of {ROOT}")
    parsed.paths = parsed.paths or ([] if parsed.all else list(SAMPLE))
    return parsed


def environments(parsed: argparse.Namespace) -> list[Callable[[], Environment]]:
    """Return for each environment what gives it, or makes it."""
    if parsed.python:
        return [partial(given, each) for each in parsed.python]
    return [partial(made, pair, interpreter, parsed.folder) for pair, interpreter in pairs()]


def run(environment: Environment, parsed: argparse.Namespace, file: Path, end: float) -> bool:
    """Run what is asked for in an environment, and return whether it has come to its end."""
    options = ["-q", "-p", "no:cacheprovider", "-p", "tests.versions.recording"]
    if not parsed.paths:  # paths are run whole without it
        options += ["--sample", str(parsed.sample), "--salt", _SALT]
    workers = [f"-n{parsed.jobs}"] if parsed.jobs > 1 else []
    variables = {FILE: str(file.resolve())}
    code = _end(environment, ["pytest", *options, *workers, *parsed.paths], variables, end)
    is_whole = code in (0, 1, 5)  # all have passed, some have failed, there was none to run
    if parsed.stock is not None:
        words = ["tests.versions.stock", str(parsed.stock.resolve())]
        is_whole &= _end(environment, words, {}, end) == 0
    return is_whole


def _end(
    environment: Environment, words: Sequence[str], variables: dict[str, str], end: float
) -> int | None:
    """Return the exit code of a module that is run, or nothing if it was not done in time."""
    command = [str(environment.executable), "-m", *words]
    variables = {**os.environ, **variables, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=ROOT, env=variables, start_new_session=True) as process:
        try:
            return process.wait(max(end - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests with each pair, print the table, and return the exit code."""
    parsed = parse(arguments)
    end, is_whole = time.monotonic() + 60 * parsed.minutes, True
    with tempfile.TemporaryDirectory() as folder:
        file = parsed.resume or Path(folder) / "records.jsonl"
        for find in environments(parsed):
            try:
                found = find()
            except NotMade as error:
                print(error, file=sys.stderr)
                is_whole = False
                continue
            print(f"torch {found.pair.release}, Python {found.pair.python}", file=sys.stderr)
            is_whole &= run(found, parsed, file, end)
        records = list(read(file).values())
    print("\n".join(table(records)))
    if parsed.write is not None:
        stock = [] if parsed.stock is None else read(parsed.stock).values()
        parsed.write.write_text(page(records, parsed.paths, stock, parsed.sample), encoding="utf-8")
    return 0 if is_whole and not any(each.outcome == FAILED for each in records) else 1


if __name__ == "__main__":
    sys.exit(main())
