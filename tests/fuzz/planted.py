"""Planted bugs: ``python -m tests.fuzz.planted``. What share of them does the fuzzer find?

The bugs are in `tests.fuzz.bugs`. First one search is made for all of them. Each
program is tried without any bug, and it is noted which of the functions it came to. Then each bug
in one of these is applied alone and the program is tried again: a bug is found if that gives a
difference. A program that never comes to the wrong function cannot show it.

Then each bug that is left has a search of its own, which goes on where that has ended, with the bug
applied from the start. It is steered: three programs in four are variations of one that came to the
wrong function. What differs is tried without the bug before it counts.
"""

from __future__ import annotations

import argparse
import os
import pickle
import random
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pkgutil import resolve_name
from typing import Any, Final
from unittest import mock

import torch

from tests.fuzz.bugs import PLANTED, Planted, Wrong
from tests.fuzz.grammar import program_of
from tests.fuzz.jobs import quiet
from tests.fuzz.oracles import MORE_GRAPHS, NO_REFERENCE, SAME, SLOW, STOCK_TOO, WRONG, judge
from tests.fuzz.programs import Program
from tests.fuzz.steering import Pool, Ways, visited

_SHARES: Final = {"eager": 0.03, "plain": 0.17, "compiled": 0.6, "fullgraph": 0.2}
_RIGHT: Final = (SAME, STOCK_TOO, MORE_GRAPHS, NO_REFERENCE)
_LIMIT: Final = 4.0  # seconds that a program may take
_SLOW: Final = 2.0  # and with more than this, it is neither tried with bugs nor varied
_SHARED: Final = 1 / 12  # of the time that one search for all bugs gets
_SHARED_TRIES: Final = 2  # of a bug in that search, which goes on to note what comes where
_SHARE: Final = 6.0  # seconds that the search for a bug goes on before those for others do
_WARMING: Final = 3  # programs
_PLACES: Final = tuple(dict.fromkeys(bug.place for bug in PLANTED))


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
    with replaced(bug.place, bug.wrap):
        yield


@contextmanager
def replaced(place: str, wrap: Callable[[Any], Wrong]) -> Iterator[None]:
    path, _, name = place.rpartition(".")
    owner = resolve_name(path)
    with mock.patch.object(owner, name, wrap(getattr(owner, name))):
        yield


def find_all(
    bugs: Sequence[Planted], seconds: float, seed: int, report: Callable[[Planted, Found], None]
) -> dict[str, Search]:
    """Search for bugs; return the searches for those that were not found, by their names.

    An interrupt ends it early.

    Args:
        bugs: what to apply, one at a time.
        seconds: how long to search for each. The search for all bugs counts for each of them.
        seed: where to begin.
        report: is called for each that is found.
    """
    shared = Search(random.Random(seed))
    searches = {bug.name: shared for bug in bugs}
    try:
        _find_together(bugs, searches, shared, seconds * _SHARED, report)
        searches.update({name: shared.going_on(f"{seed} {name}") for name in searches})
        while any(search.total < seconds for search in searches.values()):
            for bug in [bug for bug in bugs if bug.name in searches]:
                if _is_found(bug, searches[bug.name], seconds, report):
                    del searches[bug.name]
    except KeyboardInterrupt:
        pass
    return searches


def _find_together(
    bugs: Sequence[Planted],
    searches: dict[str, Search],
    shared: Search,
    seconds: float,
    report: Callable[[Planted, Found], None],
) -> None:
    """Search for all bugs at once; take those that are found out of ``searches``."""
    tries: Counter[str] = Counter()
    for oracle in _SHARES:  # so that the processes that are forked have imported what it takes
        for _ in range(_WARMING):
            judge(oracle, program_of(shared.source.choice), _LIMIT)
    while searches and shared.total < seconds:
        tried = shared.try_one(None)
        if tried.result.kind not in _RIGHT or tried.result.seconds > _SLOW:
            continue
        reached = [each for each in bugs if each.place in tried.result.ways]
        for bug in [each for each in reached if each.name in searches]:
            if tries[bug.name] == _SHARED_TRIES:
                continue
            tries[bug.name] += 1
            first = _run(tried.oracle, tried.program, bug).difference
            if first:
                del searches[bug.name]
                report(bug, Found(tried.oracle, shared.programs, shared.total, first))


def _is_found(
    bug: Planted, own: Search, seconds: float, report: Callable[[Planted, Found], None]
) -> bool:
    """Go on a little with the search for one bug; each program has it from the start."""
    end = min(own.total + _SHARE, seconds)
    while own.total < end:
        tried = own.try_one(bug)
        if not tried.result.difference:
            continue
        right = _run(tried.oracle, tried.program, None)
        own.spent[tried.oracle] += right.seconds
        if right.kind in _RIGHT:
            report(bug, Found(tried.oracle, own.programs, own.total, tried.result.difference))
            return True
    return False


@dataclass(frozen=True, slots=True)
class _Result:
    """What came of a program: the verdict, a difference, seconds, and where it came."""

    kind: str = ""
    difference: str = ""
    seconds: float = 0.0
    ways: Ways = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Tried:
    program: Program
    oracle: str
    result: _Result


@dataclass(slots=True)
class Search:
    """A search: how many programs it has tried, and the seconds that it has spent by oracle."""

    source: random.Random
    pool: Pool = field(default_factory=Pool)
    programs: int = 0
    spent: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_SHARES, 0.0))

    @property
    def total(self) -> float:
        return sum(self.spent.values())

    def going_on(self, seed: str) -> Search:
        """Return a search that goes on from here by itself."""
        return replace(
            self, source=random.Random(seed), pool=self.pool.copy(), spent=dict(self.spent)
        )

    def try_one(self, bug: Planted | None) -> _Tried:
        """Try a program, steered to where the bug is; note where it came."""
        place = "" if bug is None else bug.place
        oracle, choices = self.pool.next(self.source, place, self._oracle)
        program = program_of(choices.pick)
        result = _run(oracle, program, bug)
        self.programs += 1
        self.spent[oracle] += result.seconds
        if result.kind in _RIGHT and result.seconds < _SLOW:
            self.pool.add(oracle, choices, result.ways)
        return _Tried(program, oracle, result)

    def _oracle(self) -> str:
        return min(_SHARES, key=lambda each: self.spent[each] / _SHARES[each])


def _run(oracle: str, program: Program, bug: Planted | None) -> _Result:
    """Run a program, with a bug if one is given, in a process of its own.

    What a bug does to memory should end no search.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)  # the threads of the process that it was forked from are not here
        try:
            with (
                visited(_PLACES, replaced) as ways,
                applied(bug) if bug else nullcontext(),
                visited([bug.place] if bug else [], replaced) as wrong_ways,
            ):
                verdict = judge(oracle, program, _LIMIT)
            for place, found in wrong_ways.items():
                ways.setdefault(place, set()).update(found)
            first = verdict.differences[0][:1000] if verdict.kind == WRONG else ""
            with open(writing, "wb") as answer:
                pickle.dump((verdict.kind, first, ways), answer)
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as answers:
        said = answers.read()
    _, status, usage = os.wait4(child, 0)
    seconds = usage.ru_utime + usage.ru_stime
    ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if ended_by and ended_by != signal.SIGKILL:
        return _Result(WRONG, f"the process ends with signal {ended_by}", seconds)
    kind, difference, ways = pickle.loads(said) if said else (SLOW, "", {})
    return _Result(kind, difference, seconds, ways)


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the bugs; the exit status is how many were not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.planted", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0, help="of search for each bug")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="bugs whose names this pattern matches")
    given = parser.parse_args(arguments)
    bugs = [bug for bug in PLANTED if re.search(given.only, bug.name)]
    terminal = sys.stdout
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    quiet()

    def show(line: str) -> None:
        print(line, file=terminal, flush=True)

    def report(bug: Planted, found: Found) -> None:
        what = found.difference.partition("\n")[0].replace("|", "/")[:60]
        row = f"{bug.name} | {found.oracle} | {found.programs} | {found.seconds:.0f} s | {what}"
        show(f"| {row} |")

    show("| planted bug | found by | programs | after | first difference |")
    show("|---|---|---|---|---|")
    missing = find_all(bugs, given.minutes * 60, given.seed, report)
    for name, search in missing.items():
        show(f"| {name} | not found | {search.programs} | {search.total:.0f} s | |")
    ended = any(search.total < given.minutes * 60 for search in missing.values())
    early = " The searches for the others were ended early." if ended else ""
    show(f"\n{len(bugs) - len(missing)} of {len(bugs)} found, with seed {given.seed}.{early}")
    return len(missing)


if __name__ == "__main__":
    from tests.fuzz.planted import main as run

    sys.exit(run())
