"""The fuzzer: ``python -m tests.fuzz --minutes N --seed S --jobs J``.

Prints progress, what was reached, how fast each oracle is, and every kind of failure; saves each
failure, minimised, under corpus/regressions.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from queue import Empty
from typing import Any

import torch

from tests.fuzz.oracles import SLOW, WRONG
from tests.fuzz.saved import save
from tests.fuzz.search import SHARES, Tried, minimised, search, signature


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


def _work(seed: int, seconds: float, shares: dict[str, float], queue: Any) -> None:
    quiet()
    seen: set[str] = set()
    for tried in search(seed, seconds, shares):
        queue.put(tried)
        kind = f"{tried.oracle} {signature(tried.verdict)}"
        if tried.verdict.kind == WRONG and kind not in seen:
            seen.add(kind)
            queue.put((tried, minimised(tried, 90.0)))
    queue.put(None)


def run(arguments: argparse.Namespace) -> int:
    """Search in several processes; return how many kinds of failure were found."""
    shares = {name: SHARES[name] for name in arguments.oracles.split(",")}
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    workers = [
        context.Process(
            target=_work,
            args=(arguments.seed + job, arguments.minutes * 60, shares, queue),
            daemon=True,
        )
        for job in range(arguments.jobs)
    ]
    for worker in workers:
        worker.start()
    tally, failures = Tally(), {}
    next_lines = time.monotonic() + 60
    while any(worker.is_alive() for worker in workers) or not queue.empty():
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
        if time.monotonic() > next_lines:
            next_lines += 60
            print(*tally.lines(), sep="\n", flush=True)
    print(*tally.lines(), f"{len(failures)} kinds of failure", sep="\n")
    crashed = [worker.exitcode for worker in workers if worker.exitcode]
    return len(failures) + len(crashed)


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
    parser.add_argument("--oracles", default=",".join(SHARES), help="separated by commas")
    return min(run(parser.parse_args(arguments)), 100)
