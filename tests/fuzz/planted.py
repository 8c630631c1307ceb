"""Planted bugs: ``python -m tests.fuzz.planted``. What share of them does the fuzzer find?

The bugs are in `tests.fuzz.bugs`. Random programs are tried without any bug first,
and it is noted which of the functions they came to. Then each bug in one of these is applied alone
and the program is tried again: a bug is found if that gives a difference. A program that never
comes to the wrong function cannot show it, so that is what the fuzzer alone would find, sooner.

For some of the time one search is made for all bugs. What is left of it each bug that was not found
has for itself, and there the programs are steered: mostly they are variations of one that has come
to the wrong function, which makes most of its choices again.
"""

from __future__ import annotations

import argparse
import functools
import os
import random
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pkgutil import resolve_name
from typing import Any, Final
from unittest import mock

from tests.fuzz.bugs import PLANTED, Planted, Wrong
from tests.fuzz.grammar import Choices, program_of
from tests.fuzz.jobs import quiet
from tests.fuzz.oracles import MORE_GRAPHS, NO_REFERENCE, SAME, STOCK_TOO, WRONG, judge
from tests.fuzz.pages import PAGE, write_table
from tests.fuzz.programs import Program

_SHARES: Final = {"eager": 0.03, "plain": 0.17, "compiled": 0.6, "fullgraph": 0.2}
_RIGHT: Final = (SAME, STOCK_TOO, MORE_GRAPHS, NO_REFERENCE)
_LIMIT: Final = 6.0  # seconds that a program may take
_DEAR: Final = 0.7  # and with more than this, it is not tried with every bug
_SHARED: Final = 1 / 6  # of the time that one search for all bugs gets
_STEERED: Final = 0.75  # of the programs of a search for one bug
_NEWEST: Final = 60  # programs that came to its function are varied


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
    """Search for bugs; return those that were not found.

    Args:
        bugs: what to apply, one at a time.
        seconds: how long to search for each. The search for all bugs counts for each of them.
        seed: where to begin.
        report: is called for each that is found.
    """
    missing, pool = list(bugs), Pool()
    for tried in _tries(random.Random(seed), pool, "", seconds * _SHARED):
        for bug in [each for each in missing if each.place in tried.places]:
            first = "" if tried.seconds > _DEAR else _difference(bug, tried.oracle, tried.program)
            if first:
                missing.remove(bug)
                report(bug, Found(tried.oracle, tried.number, tried.spent, first))
        if not missing:
            break
    return [bug for bug in missing if not _is_found(bug, seconds, seed, pool, report)]


def _is_found(
    bug: Planted, seconds: float, seed: int, pool: Pool, report: Callable[[Planted, Found], None]
) -> bool:
    """Search for one bug behind the search for all."""
    own = replace(pool, reached={bug.place: list(pool.reached.get(bug.place, ()))})
    for tried in _tries(random.Random(f"{seed} {bug.name}"), own, bug.place, seconds):
        if bug.place in tried.places:
            first = _difference(bug, tried.oracle, tried.program)
            if first:
                report(bug, Found(tried.oracle, tried.number, tried.spent, first))
                return True
    return False


@dataclass(slots=True)
class Pool:
    """What a search has tried.

    Attributes:
        reached: the choices behind the programs that came to a place, with their oracles.
        programs: how many it has tried.
        spent: the seconds of one processor, by oracle.
    """

    reached: dict[str, list[tuple[str, Choices]]] = field(default_factory=dict)
    programs: int = 0
    spent: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_SHARES, 0.0))


@dataclass(frozen=True, slots=True)
class Try:
    """A program that is right without a bug: where it came, and what all of them have taken."""

    program: Program
    oracle: str
    places: frozenset[str]
    seconds: float
    number: int
    spent: float


def _tries(source: random.Random, pool: Pool, goal: str, seconds: float) -> Iterator[Try]:
    """Try programs, steered to a place if there is a goal, until the pool has spent the seconds."""
    pool.spent = dict(pool.spent)
    while sum(pool.spent.values()) < seconds:
        known = pool.reached.get(goal, [])
        if known and source.random() < _STEERED:
            oracle, parent = source.choice(known[-_NEWEST:])
            choices = parent.varied()
        else:
            oracle = min(_SHARES, key=lambda each: pool.spent[each] / _SHARES[each])
            choices = Choices(source)
        program = program_of(choices.pick)
        begun = time.process_time()
        with visited() as places:
            verdict = judge(oracle, program, _LIMIT)
        took = time.process_time() - begun
        pool.spent[oracle] += took
        pool.programs += 1
        if verdict.kind not in _RIGHT:
            continue
        for place in places:
            pool.reached.setdefault(place, []).append((oracle, choices))
        total = sum(pool.spent.values())
        yield Try(program, oracle, frozenset(places), took, pool.programs, total)


def _difference(bug: Planted, oracle: str, program: Program) -> str:
    """Return the first difference that a bug makes to a program; empty if it makes none.

    A process of its own tries it, since what a bug does to memory should end no search.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with applied(bug):
                verdict = judge(oracle, program, _LIMIT)
            if verdict.kind == WRONG:
                os.write(writing, verdict.differences[0].encode()[:1000])
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as answers:
        found = answers.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if ended_by and ended_by != signal.SIGKILL:
        return f"the process ends with signal {ended_by}"
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the bugs; the exit status is how many were not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.planted", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0, help="of search for each bug")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="bugs whose names this pattern matches")
    parser.add_argument("--write", action="store_true", help=f"the table into {PAGE.name}")
    given = parser.parse_args(arguments)
    bugs = [bug for bug in PLANTED if re.search(given.only, bug.name)]
    terminal = sys.stdout
    quiet()
    table: list[str] = []

    def show(line: str) -> None:
        table.append(line)
        print(line, file=terminal, flush=True)

    def report(bug: Planted, found: Found) -> None:
        what = found.difference.partition("\n")[0].replace("|", "/")[:60]
        row = f"{bug.name} | {found.oracle} | {found.programs} | {found.seconds:.0f} s | {what}"
        show(f"| {row} |")

    show("| planted bug | found by | programs | after | first difference |")
    show("|---|---|---|---|---|")
    missing = find_all(bugs, given.minutes * 60, given.seed, report)
    for bug in missing:
        show(f"| {bug.name} | not found | | | |")
    show(f"\n{len(bugs) - len(missing)} of {len(bugs)} found, with seed {given.seed}.")
    if given.write:
        write_table(PAGE, "planted bugs", "\n".join(table))
    return len(missing)


if __name__ == "__main__":
    from tests.fuzz.planted import main as run

    sys.exit(run())
