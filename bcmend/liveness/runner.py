"""Runs the programs, each patched and compiled beside eager execution, and says what was found."""

from __future__ import annotations

import logging
import random
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, Final

import numpy
import torch

import bcmend
from bcmend.errors import UntestedTorch
from bcmend.liveness import counting
from bcmend.liveness.counting import Calls, CallTarget
from bcmend.liveness.outcome import Plain, outcome_of
from bcmend.liveness.program import Program

_SEED: Final = 20


@dataclass(frozen=True, slots=True)
class Ran:
    """What one program has shown.

    Attributes:
        difference: how it differs from eager execution; empty where it does not.
        graphs: how many there were; 0 for another back end than "eager".
        called: the targets and the purposes of what torch has called.
        not_called: those that the program has to have called, and has not.
    """

    program: Program
    difference: str
    graphs: int
    called: frozenset[str]
    not_called: tuple[str, ...]
    seconds: float

    @property
    def is_right(self) -> bool:
        """Return whether it is equal to eager execution, and has called what it has to."""
        return not (self.difference or self.not_called)


@dataclass(frozen=True, slots=True)
class Seen:
    """What torch has to call, and the names of the programs that have shown that it does."""

    target: str
    purpose: str
    programs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunResult:
    """What all programs have shown."""

    ran: tuple[Ran, ...]
    seen: tuple[Seen, ...]

    @property
    def is_right(self) -> bool:
        """Return whether all is called, and every program is as it has to be."""
        return all(each.is_right for each in self.ran) and all(each.programs for each in self.seen)


def run(programs: Sequence[Program]) -> RunResult:
    """Run programs one after another.

    Raises ``BcmendError`` while anything is patched.
    """
    ran: list[Ran] = []
    seen: dict[CallTarget, list[str]] = {}
    with counting.counted() as calls, _without_traces():
        for program in programs:
            ran.append(_run(program, calls))
            for subject in calls.subjects:
                names = seen.setdefault(subject, [])
                if subject in calls.called and program.claims(subject.target, subject.purpose):
                    names.append(program.name)
    found = [Seen(each.target, each.purpose, tuple(names)) for each, names in seen.items()]
    return RunResult(tuple(ran), tuple(sorted(found, key=lambda each: (each.target, each.purpose))))


@contextmanager
def _without_traces() -> Iterator[None]:
    """Leave the generators of random numbers as they were, and nothing compiled or logged."""
    states = torch.get_rng_state(), random.getstate(), numpy.random.get_state()
    loggers = [logging.getLogger(name) for name in ("torch._dynamo", "bcmend")]
    levels = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UntestedTorch)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        torch.compiler.reset()
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        numpy.random.set_state(states[2])


def _run(program: Program, calls: Calls) -> Ran:
    begun = time.perf_counter()
    make = _fresh(program.make)
    original = make()
    expected = list(_outcomes(program, original, original))
    torch.compiler.reset()
    calls.begin()
    graphs: list[object] = []
    with bcmend.patched(make()) as patched:
        backend = _counting(program.backend, graphs)
        call = program.way(patched, {"backend": backend, "fullgraph": program.fullgraph})
        found = list(_outcomes(program, patched, call))
    seen = calls.called
    called = {each.target for each in seen} | {each.purpose for each in seen} | calls.about
    return Ran(
        program,
        _difference(expected, found),
        len(graphs),
        frozenset(called),
        tuple(each for each in program.proves if each not in called),
        time.perf_counter() - begun,
    )


def _fresh(make: Any) -> Any:
    """Return a factory of code that neither Dynamo nor bcmend has met."""
    cells = make.__closure__
    return FunctionType(_copied(make.__code__), make.__globals__, make.__name__, None, cells)


def _copied(code: CodeType) -> CodeType:
    inside = (_copied(each) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_consts=tuple(inside))


def _counting(backend: str, graphs: list[object]) -> Any:
    """Return a back end that notes its graphs; any but "eager" as torch knows it, by its name."""

    def run_as_it_is(module: Any, inputs: Any) -> Any:
        graphs.append(module)
        return module.forward

    return run_as_it_is if backend == "eager" else backend


def _outcomes(program: Program, original: Any, call: Any) -> Iterator[Plain]:
    for arguments in program.inputs():
        torch.manual_seed(_SEED)
        random.seed(_SEED)
        numpy.random.seed(_SEED)
        yield outcome_of(original, call, arguments, training=program.training)


def _difference(expected: Sequence[Plain], found: Sequence[Plain]) -> str:
    """Return where two lists of outcomes differ first, as a text; exceptions before all else."""
    for number, (one, other) in enumerate(zip(expected, found, strict=True)):
        if one != other:
            raised = one[0][2], other[0][2]
            eager, compiled = raised if raised[0] != raised[1] else _first_other(one, other)
            return f"call {number}: {compiled!r:.300}, in eager execution {eager!r:.300}"
    return ""


def _first_other(one: Plain, other: Plain) -> tuple[Plain, Plain]:
    """Return the innermost parts of two values in which they differ first."""
    if type(one) is type(other) is tuple and len(one) == len(other):
        for part, another in zip(one, other, strict=True):
            if part != another:
                return _first_other(part, another)
    return one, other
