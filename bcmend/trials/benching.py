"""`bcmend.bench`: what calls take in eager execution, compiled, and compiled once mended, in turns.

Each side is a process that lives until all is measured. First calls are made one after another,
then in new processes that find what was compiled; later calls in turns (eager, stock, mended,
eager, ...), so that what else happens on the machine happens to all alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import torch

from bcmend import api
from bcmend.errors import CallError, TrialError
from bcmend.reports import steps
from bcmend.reports.benchmark import SIDES, Benchmark, Measured, spread_of
from bcmend.trials.apart import PATCHED, TriedCall, makes_copies
from bcmend.trials.side_calls import (
    About,
    Counted,
    Kind,
    Make,
    Took,
    copied_calls,
    made_calls,
)
from bcmend.trials.subject import only_traces, subject_of
from bcmend.trials.workers import Worker, copied_worker, new_worker

#: Rounds, at least and at most; each is a turn of every side.
_LEAST: Final = 5
_MOST: Final = 25
#: Seconds of a turn at most, unless a call takes longer.
_TURN: Final = 0.25
_TURNS: Final = _MOST * len(SIDES)
_FIRST_CALLS: Final = 2 * len(SIDES)


def bench(
    obj: Any,
    *args: Any,
    train: bool = False,
    backend: str = "inductor",
    seconds: float = 60.0,
    **kwargs: Any,
) -> Benchmark:
    """Return what calls of ``obj`` take in eager execution, compiled, and compiled once mended.

    Each of the three has a process of its own, and they take turns. Nothing of the caller's is
    changed, and what the calls print is not shown. The processes are copies of this one, which
    compute on one thread; the command line has new processes, which have all threads. Where no
    copy can be made, since there is an accelerator or the system makes none, the object and the
    arguments are sent to new processes as pickles.

    Ctrl-C ends measuring; what was measured is returned.

    Args:
        obj: an ``nn.Module``, a Python function, a bound method, or what ``torch.compile`` made of
            one of these.
        args, kwargs: what it is called with, a copy for each call where these can be copied.
        train: have a module in training mode, and each call go back from the sum of all floating
            results. Else it is in the mode that it has, and no gradients are recorded.
        backend: of `torch.compile`. Of one that only traces, such as "eager", graphs are compared,
            and no times.
        seconds: how long later calls are made, of all sides together; first calls are made before,
            and five turns of each side, however long they take.

    Raises:
        UnsupportedObject: ``obj`` is nothing that can be patched, or a class.
        CallError: the arguments are not those of the object, ``seconds`` is no positive number, or
            torch has no such back end.
        TrialError: the calls could not be made.
    """
    _require(seconds)
    subject = subject_of(obj, args, kwargs, backend=backend)
    if makes_copies(goes_back=train):
        start: _Start = partial(_copy, subject)
        return _benched(start, train, backend, seconds, is_copied=True)
    if api.is_anything_patched():
        raise TrialError(PATCHED)
    given = (subject.obj, subject.arguments, subject.keywords)
    start = partial(_new, partial(_given, given))
    return _benched(start, train, backend, seconds, is_copied=False)


def bench_made(make: Make, *, train: bool, backend: str, seconds: float) -> Benchmark:
    """Return the same of what ``make``, which has to be sent to new processes, makes in each.

    Raises:
        BcmendError: as for `bench`, and whatever ``make`` raises that is bcmend's own.
    """
    _require(seconds)
    return _benched(partial(_new, make), train, backend, seconds, is_copied=False)


def _require(seconds: object) -> None:
    if not isinstance(seconds, (int, float)) or not seconds > 0:
        raise CallError(f"bench(seconds=...) takes a positive number of seconds, got {seconds!r}")


def _given(given: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
    """Return an object and its arguments, which were sent to the process."""
    return given


_Start = Callable[[Kind], Worker]
"""Starts the process of a side."""


def _copy(subject: TriedCall, kind: Kind) -> Worker:
    return copied_worker(subject, partial(copied_calls, kind, subject))


def _new(make: Make, kind: Kind) -> Worker:
    return new_worker(partial(made_calls, kind, make), kind.environment())


def _benched(
    start: _Start, train: bool, backend: str, seconds: float, *, is_copied: bool
) -> Benchmark:
    with (
        steps.shown("starting"),
        TemporaryDirectory(prefix="bcmend_", ignore_cleanup_errors=True) as folder,
        ExitStack() as ended,
    ):
        kinds = {side: Kind(side, backend, train, f"{folder}/{side}") for side in SIDES}
        sides = [_Side(kind, start) for kind in kinds.values()]
        for each in sides:
            ended.callback(each.close)
        about = sides[0].about()
        is_complete = _is_measured(sides, seconds)
        return Benchmark(
            about.title,
            torch.__version__,
            backend,
            only_traces(backend),
            train,
            about.in_training_mode,
            about.device,
            about.threads,
            is_copied,
            is_complete,
            *(each.found() for each in sides),
        )


@dataclass(slots=True)
class _Side:
    """A side while it is measured; what fails is noted, and it is asked no more."""

    kind: Kind
    start: _Start
    worker: Worker | None = None
    turns: list[float] = field(default_factory=list)
    first_cold: float | None = None
    first_warm: float | None = None
    counts: Counted = field(default_factory=lambda: Counted(None, None, None))
    peak: int | None = None
    raised: str = ""

    def about(self) -> About:
        """Return what the side is. Raises what is wrong with the object or its arguments."""
        self.worker = self.start(self.kind)
        about: About = self.worker.ask("about")
        return about

    def call_first(self) -> None:
        """Make the first call, and those until all is settled."""
        with self._noting():
            if self.worker is None:
                self.worker = self.start(self.kind)
            took = self._asked(self.worker, "first")
            self.first_cold = took.seconds[0]
            self._asked(self.worker, "settle")

    def call_again(self) -> None:
        """Make the first call in another process, and count in it."""
        with self._noting(), self.start(self.kind) as worker:
            took = self._asked(worker, "first")
            self.first_warm = took.seconds[0]
            self.counts = worker.ask("counts")

    def take_turn(self, seconds: float) -> None:
        """Make later calls."""
        with self._noting():
            assert self.worker is not None
            self.turns.append(median(self._asked(self.worker, "turn", seconds).seconds))

    def measure_peak(self) -> None:
        """Note the memory that later calls took."""
        with self._noting():
            assert self.worker is not None
            self.peak = self.worker.ask("peak")

    def close(self) -> None:
        """End the process."""
        if self.worker is not None:
            self.worker.close()

    def found(self) -> Measured:
        """Return what was measured; no times of a side that has raised."""
        return Measured(
            None if self.raised else spread_of(self.turns),
            self.first_cold,
            self.first_warm,
            self.counts.graphs,
            self.counts.breaks,
            self.counts.reads,
            self.peak,
            self.raised,
        )

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Note what fails in a block; leave it out where something has failed before."""
        try:
            yield
        except _Raised as raised:
            self.raised = str(raised)
        except TrialError as error:
            self.raised = " ".join(str(error).split())

    def _asked(self, worker: Worker, name: str, *arguments: Any) -> Took:
        took: Took = worker.ask(name, *arguments)
        if took.raised:
            raise _Raised(took.raised)
        return took


class _Raised(Exception):
    """A call has raised something."""


def _is_measured(sides: list[_Side], seconds: float) -> bool:
    """Measure all that there is time for; return whether it was not interrupted."""
    try:
        for at, each in enumerate(sides, 1):
            steps.step(f"{each.kind.side}: first call ({at} of {_FIRST_CALLS})")
            each.call_first()
        for at, each in enumerate(sides, len(sides) + 1):
            if not each.raised:
                steps.step(f"{each.kind.side}: first call, warm ({at} of {_FIRST_CALLS})")
                each.call_again()
        _take_turns(sides, seconds)
        for each in sides:
            if not each.raised:
                each.measure_peak()
    except KeyboardInterrupt:
        return False
    return True


def _take_turns(sides: list[_Side], seconds: float) -> None:
    begun = time.monotonic()
    until, turn = begun + seconds, min(_TURN, seconds / _TURNS)
    for number in range(_MOST):
        took = (time.monotonic() - begun) / max(number, 1)
        if number >= _LEAST and time.monotonic() + took > until:
            return
        for each in sides:
            if not each.raised:
                left = _left(number, took, until)
                share = 1 - left / (left + time.monotonic() - begun) if left else None
                steps.step(f"{each.kind.side}: later calls", share, left)
                each.take_turn(turn)


def _left(number: int, took: float, until: float) -> float | None:
    """Return the seconds that are left after some rounds; None where none was made."""
    if not number:
        return None
    least = max(0, _LEAST - number) * took
    return max(least, min((_MOST - number) * took, until - time.monotonic()))
