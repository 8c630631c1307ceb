"""Planted bugs: ``python -m tests.fuzz.planted``. What share of them does the fuzzer find?

The bugs are in `tests.fuzz.bugs`. Random programs are tried without any bug first,
and it is noted which of the functions they came to. Then each bug in one of these is applied alone
and the program is tried again: a bug is found if that gives a difference. A program that never
comes to the wrong function cannot show it, so that is what the fuzzer alone would find, sooner.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any, Final
from unittest import mock

from tests.fuzz.bugs import PLANTED, Planted, Wrong
from tests.fuzz.jobs import quiet
from tests.fuzz.oracles import MORE_GRAPHS, NO_REFERENCE, SAME, STOCK_TOO, WRONG, judge
from tests.fuzz.programs import Program
from tests.fuzz.search import Tried, search

_SHARES: Final = {"eager": 0.03, "plain": 0.17, "compiled": 0.5, "fullgraph": 0.3}
_RIGHT: Final = (SAME, STOCK_TOO, MORE_GRAPHS, NO_REFERENCE)
_LIMIT: Final = 20.0  # seconds that a program may take


@dataclass(frozen=True, slots=True)
class Found:
    """A bug that was found: after how many programs, and after how many seconds of running them."""

    oracle: str
    programs: int
    seconds: float
    difference: str


@contextmanager
def applied(bug: Planted) -> Iterator[None]:
    """Have a bug for the length of a block."""
    with _replaced(bug.place, bug.wrap):
        yield


@contextmanager
def _replaced(place: str, wrap: Callable[[Any], Wrong]) -> Iterator[None]:
    path, _, name = place.rpartition(".")
    owner = resolve_name(path)
    with mock.patch.object(owner, name, wrap(getattr(owner, name))):
        yield


@contextmanager
def visited() -> Iterator[set[str]]:
    """Yield a set that gets the places of planted bugs that are come to."""
    places: set[str] = set()

    def noting(place: str) -> Callable[[Any], Wrong]:
        def wrap(right: Any) -> Wrong:
            @functools.wraps(right, updated=())
            def noted(*arguments: Any, **keywords: Any) -> Any:
                places.add(place)
                return right(*arguments, **keywords)

            return noted

        return wrap

    with ExitStack() as stack:
        for place in dict.fromkeys(bug.place for bug in PLANTED):
            stack.enter_context(_replaced(place, noting(place)))
        yield places


def find_all(
    bugs: Sequence[Planted], seconds: float, seed: int, report: Callable[[Planted, Found], None]
) -> list[Planted]:
    """Search for bugs for some time; return those that were not found.

    Args:
        bugs: what to apply, one at a time.
        seconds: how long to go on.
        seed: where to begin.
        report: is called for each that is found.
    """
    missing, spent, programs = list(bugs), 0.0, 0
    begun = time.monotonic()
    for tried, places in _noted_search(seed, seconds):
        programs += 1
        spent += tried.seconds
        for bug in [each for each in missing if each.place in places]:
            if tried.verdict.kind not in _RIGHT or time.monotonic() - begun > seconds:
                break
            first = _difference(bug, tried.oracle, tried.program)
            if first:
                missing.remove(bug)
                report(bug, Found(tried.oracle, programs, spent, first))
        if not missing:
            break
    return missing


def _noted_search(seed: int, seconds: float) -> Iterator[tuple[Tried, set[str]]]:
    """Search without a bug, and say where each program came."""
    searching = search(seed, seconds, _SHARES, limit=_LIMIT)
    while True:
        with visited() as places:
            tried = next(searching, None)
        if tried is None:
            return
        yield tried, places


def _difference(bug: Planted, oracle: str, program: Program) -> str:
    """Return the first difference that a bug makes to a program; empty if it makes none."""
    if bug.crashes:
        return _difference_in_a_process(bug, oracle, program)
    with applied(bug):
        verdict = judge(oracle, program, _LIMIT)
    return verdict.differences[0] if verdict.kind == WRONG else ""


def _difference_in_a_process(bug: Planted, oracle: str, program: Program) -> str:
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_exit_if_wrong, args=(PLANTED.index(bug), oracle, program))
    process.start()
    process.join(_LIMIT + 60)
    if process.is_alive():
        process.kill()
        return ""
    return f"the process ends with {process.exitcode}" if process.exitcode else ""


def _exit_if_wrong(number: int, oracle: str, program: Program) -> None:
    quiet()
    with applied(PLANTED[number]):
        sys.exit(judge(oracle, program, _LIMIT).kind == WRONG)


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the bugs; the exit status is how many were not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.planted", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="for all bugs together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="bugs whose names this pattern matches")
    parser.add_argument("--part", default="0/1", help="which of how many parts of the list")
    given = parser.parse_args(arguments)
    part, parts = map(int, given.part.split("/"))
    bugs = [bug for bug in PLANTED if re.search(given.only, bug.name)][part::parts]
    terminal = sys.stdout
    quiet()

    def report(bug: Planted, found: Found) -> None:
        what = found.difference.partition("\n")[0].replace("|", "/")[:60]
        row = f"{bug.name} | {found.oracle} | {found.programs} | {found.seconds:.0f} s | {what}"
        print(f"| {row} |", file=terminal, flush=True)

    print("| planted bug | found by | programs | after | first difference |", file=terminal)
    print("|---|---|---|---|---|", file=terminal, flush=True)
    missing = find_all(bugs, given.minutes * 60, given.seed, report)
    for bug in missing:
        print(f"| {bug.name} | not found | | | |", file=terminal)
    print(f"\n{len(bugs) - len(missing)} of {len(bugs)} found", file=terminal, flush=True)
    return len(missing)


if __name__ == "__main__":
    from tests.fuzz.planted import main as run

    sys.exit(run())
