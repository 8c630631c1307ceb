"""The fuzzer: ``python -m tests.fuzz --minutes N --seed S --jobs J``.

Prints progress, what was reached, how fast each oracle is, and every kind of failure; saves each
failure, minimised, under corpus/regressions.
"""

from __future__ import annotations

import argparse
import functools
import logging
import multiprocessing
import os
import resource
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import Empty
from typing import Any, Final

import torch

from tests.fuzz.oracles import SLOW, WRONG, Verdict
from tests.fuzz.programs import Program
from tests.fuzz.saved import save
from tests.fuzz.search import (
    SEEDS_OF_A_JOB,
    SHARES,
    SUBJECTS,
    Tried,
    minimised,
    program_about,
    search,
    signature,
)


@dataclass(slots=True)
class Tally:
    """What was tried and what was found."""

    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    sites: Counter[str] = field(default_factory=Counter)

    def add(self, tried: Tried) -> None:
        self.kinds[tried.oracle, tried.verdict.kind] += 1
        self.seconds[tried.oracle] += tried.seconds  # type: ignore[assignment]
        self.sites.update(tried.verdict.sites)

    def lines(self) -> list[str]:
        """Return a line for each oracle, and what became of sites."""
        found = []
        for oracle in self.seconds:
            kinds = {kind: n for (name, kind), n in self.kinds.items() if name == oracle}
            total, seconds = sum(kinds.values()), self.seconds[oracle]
            rest = ", ".join(f"{kind} {n}" for kind, n in sorted(kinds.items()))
            found.append(f"{oracle:10} {total:6} programs, {total * 60 / seconds:7.0f}/min: {rest}")
        reached = "; ".join(f"{site} {n}" for site, n in self.sites.most_common())
        return [*found, f"sites: {reached}"]


def quiet() -> None:
    """Keep the programs' output, and the compiler's, off the terminal, and to one thread."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.getLogger("torch").setLevel(logging.CRITICAL)
    sys.stdout = open(os.devnull, "w")
    sys.stderr = sys.stdout


@dataclass(slots=True)
class _Job:
    """A process that searches: its program, when it began it, and the most memory it has taken."""

    process: Any
    number: Any
    begun: Any
    memory: Any


#: What one process may take until another takes its place, and how long it may say nothing: a
#: program that neither ends nor can be interrupted is given up.
_MOST_MEMORY: Final = 3 * 2**30
_LONGEST_SILENCE: Final = 400.0
_MINIMISING: Final = 45.0


def _work(
    first: int,
    end: float,
    how: tuple[dict[str, float], Sequence[str]],
    seen: set[str],
    queue: Any,
    state: Any,
) -> None:
    """Search until `end`, or until this process has become too large or was interrupted.

    An interruption may leave modes of torch on, and minimising interrupts what takes long.
    """
    number, begun, memory = state
    quiet()

    def begin(each: int) -> None:
        number.value, begun.value = each, time.time()
        memory.value = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    left = end - time.time()
    for tried in search(first, left, how[0], begin=begin, subjects=how[1]):
        queue.put(tried)
        kind = f"{tried.oracle} {signature(tried.verdict)}"
        left = end - time.time()
        if tried.verdict.kind == WRONG and kind not in seen:
            seen.add(kind)
            queue.put((tried, minimised(tried, min(_MINIMISING, left)) if left > 0 else tried))
            return
        if memory.value > _MOST_MEMORY or tried.verdict.kind == SLOW:
            return


def run(arguments: argparse.Namespace) -> int:
    """Search in several processes; return how many kinds of failure were found."""
    shares = {name: SHARES[name] for name in arguments.oracles.split(",")}
    subjects = arguments.about.split(",")
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    end = time.time() + arguments.minutes * 60
    tally, failures = Tally(), {}

    def started(first: int) -> _Job:
        state = context.Value("q", first), context.Value("d", time.time()), context.Value("q", 0)
        kinds = set(failures)
        process = context.Process(
            target=_work, args=(first, end, (shares, subjects), kinds, queue, state), daemon=True
        )
        process.start()
        return _Job(process, *state)

    jobs = [started((arguments.seed + job) * SEEDS_OF_A_JOB) for job in range(arguments.jobs)]
    next_lines = time.time() + 60
    while jobs or not queue.empty():
        try:
            found = queue.get(timeout=5)
        except Empty:
            found = None
        if isinstance(found, Tried):
            tally.add(found)
            if found.verdict.kind == SLOW:
                print(f"slow ({found.oracle}, seed {found.seed}):\n{found.program.text}")
        elif found is not None:
            _report(*found, failures)
        make = functools.partial(program_about, subjects)
        jobs = [each for job in jobs for each in _kept(job, end, started, make, failures)]
        if time.time() > next_lines:
            next_lines += 60
            print(*tally.lines(), _memory(jobs), sep="\n", flush=True)
    print(*tally.lines(), f"{len(failures)} kinds of failure", sep="\n")
    return len(failures)


def _kept(
    job: _Job,
    end: float,
    started: Callable[[int], _Job],
    make: Callable[[int], Program],
    failures: dict[str, Tried],
) -> list[_Job]:
    """Return a job that goes on, or the one that takes its place while there is time."""
    hangs = time.time() - job.begun.value > _LONGEST_SILENCE
    if job.process.is_alive() and not hangs:
        return [job]
    if hangs:
        job.process.kill()
    job.process.join()
    if job.process.exitcode:
        what = "it hangs" if hangs else f"the process ends with {job.process.exitcode}"
        _report_end(job.number.value, make(job.number.value), what, failures)
    return [started(job.number.value + 1)] if time.time() < end - 5 else []


def _report_end(number: int, program: Program, what: str, failures: dict[str, Tried]) -> None:
    """Save a program that has ended its process; which oracle it was is not known any more."""
    tried = Tried(program, "compiled", Verdict(WRONG, (f"{what}",)), 0.0, number)
    _report(tried, tried, failures)


def _memory(jobs: Sequence[_Job]) -> str:
    return f"memory: {', '.join(f'{job.memory.value // 2**20} MiB' for job in jobs)}"


def _report(first: Tried, smaller: Tried, failures: dict[str, Tried]) -> None:
    kind = f"{smaller.oracle} {signature(smaller.verdict)}"
    if kind in failures:
        return
    failures[kind] = smaller
    path = save(smaller.program, smaller.oracle, smaller.verdict.differences[0][:300], smaller.seed)
    print(f"--- {smaller.oracle}, seed {smaller.seed}, {path.name}")
    for each in smaller.verdict.differences[:3]:
        print(f"    {each[:300]}")
    print(smaller.program.text, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; the exit status is how many kinds of failure were found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--about", default=",".join(SUBJECTS), help="separated by commas")
    parser.add_argument("--oracles", default=",".join(SHARES), help="separated by commas")
    return min(run(parser.parse_args(arguments)), 100)
