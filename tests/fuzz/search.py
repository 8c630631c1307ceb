"""Search for failures: draw programs, try them against the oracles, minimise what is wrong.

Reads a seed and a time; yields a `Tried` for every program and oracle. The oracles share the time,
not the programs: thousands of programs run in plain Python while some dozens are compiled.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tests.fuzz.containers import random_containers
from tests.fuzz.grammar import random_program
from tests.fuzz.oracles import WRONG, Verdict, judge
from tests.fuzz.programs import Program
from tests.fuzz.reduce import reduced

#: How much of the time each oracle gets.
SHARES: Final[Mapping[str, float]] = {
    "plain": 0.12,
    "eager": 0.08,
    "compiled": 0.21,
    "fullgraph": 0.14,
    "aot_eager": 0.12,
    "sides": 0.18,
    "inductor": 0.05,
    "exported": 0.05,
    "surface": 0.05,
}


#: What programs may be about.
SUBJECTS: Final[Mapping[str, Callable[[random.Random], Program]]] = {
    "anything": random_program,
    "containers": random_containers,
}


def program_about(subjects: Sequence[str], number: int) -> Program:
    """Return the program of a number; the subjects take turns."""
    return SUBJECTS[subjects[number % len(subjects)]](random.Random(number))


def _processor_seconds() -> float:
    """Return the processor's time of this process and of the copies that it has made."""
    return sum(os.times()[:4])


@dataclass(frozen=True, slots=True)
class Tried:
    """A program, tried against an oracle; `seconds` are the processor's."""

    program: Program
    oracle: str
    verdict: Verdict
    seconds: float
    seed: int


#: How many programs lie between the first ones of two seeds.
SEEDS_OF_A_JOB: Final = 1_000_000


def search(
    first: int,
    seconds: float,
    shares: Mapping[str, float] = SHARES,
    limit: float = 15.0,
    begin: Callable[[int], None] = lambda number: None,
    subjects: Sequence[str] = tuple(SUBJECTS),
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Tried]:
    """Try programs until the time is over.

    Args:
        first: the number of the first program; each has a number of its own from there on.
        seconds: how long to go on.
        shares: of the time, by oracle.
        limit: seconds of the processor's time that one program may take.
        begin: is told the number of each program before it is tried.
        subjects: what programs are about.
        clock: tells the seconds; those of the processor, if a machine is busy with other things.
    """
    end = clock() + seconds
    spent = dict.fromkeys(shares, 0.0)
    for number in itertools.count(first):
        if clock() > end:
            return
        begin(number)
        begun = _processor_seconds()
        program = program_about(subjects, number)
        oracle = min(shares, key=lambda each: spent[each] / shares[each])
        verdict = judge(oracle, program, limit)
        took = _processor_seconds() - begun
        spent[oracle] += took
        yield Tried(program, oracle, verdict, took, number)


_NUMBERS: Final = re.compile(r"\d+(\.\d+)?(e[+-]?\d+)?|'[^']*'")


def signature(verdict: Verdict) -> str:
    """Return what failures of one kind have in common, as far as their text tells."""
    if not verdict.differences:
        return ""
    first = re.sub(r"^call \d+: ", "", verdict.differences[0])
    return _NUMBERS.sub("#", first)[:80]


def minimised(tried: Tried, seconds: float) -> Tried:
    """Return a failure of the same kind of a smaller program."""
    kind = _aspect(tried.verdict)
    limit = max(10.0, 3 * tried.seconds)

    def still_fails(program: Program) -> bool:
        verdict = judge(tried.oracle, program, limit)
        return verdict.kind == WRONG and _aspect(verdict) == kind

    smaller = reduced(tried.program, still_fails, seconds)
    verdict = judge(tried.oracle, smaller, limit)
    return replace(tried, program=smaller, verdict=verdict) if verdict.kind == WRONG else tried


def _aspect(verdict: Verdict) -> Sequence[str]:
    """Return the words that a smaller program's failure has to share."""
    return (
        signature(verdict)[:30].split(":")[:1] + re.findall(r"\b\w+Error\b", signature(verdict))[:2]
    )
