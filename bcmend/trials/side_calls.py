"""Calls of one side of a benchmark, in the process of that side: what each takes.

Relies on being alone with its object: nothing that it does is undone.
"""

from __future__ import annotations

import gc
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy
import torch

from bcmend import api
from bcmend.errors import TrialError
from bcmend.patching import compilations
from bcmend.patching.subject import title_of
from bcmend.trials.apart import TriedCall
from bcmend.trials.calls import Caller, compiled, counted, reads_in_eager
from bcmend.trials.gradients import tensors_in
from bcmend.trials.subject import state_holder, subject_of

#: Calls between the first one and those that are measured.
_SETTLING: Final = 3
#: Calls of a turn, at most.
_MOST: Final = 1000
#: From how many seconds on a call gains nothing from one that goes before it in its turn.
_LONG: Final = 0.5


@dataclass(frozen=True, slots=True)
class Kind:
    """How a side is called.

    Attributes:
        side: "eager", "stock" or "mended".
        backend: what it is compiled by, unless it is eager.
        trains: whether calls go back.
        caches: the folder of what is compiled.
    """

    side: str
    backend: str
    trains: bool
    caches: str

    def environment(self) -> dict[str, str]:
        """Return the variables that have Inductor and Triton use the folder."""
        triton = os.path.join(self.caches, "triton")
        return {"TORCHINDUCTOR_CACHE_DIR": self.caches, "TRITON_CACHE_DIR": triton}


@dataclass(frozen=True, slots=True)
class About:
    """What a side is: the name of its object, its device, its threads, its mode."""

    title: str
    device: str
    threads: int
    in_training_mode: bool


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds of some calls, and what the last has raised, in one line."""

    seconds: tuple[float, ...]
    raised: str


@dataclass(frozen=True, slots=True)
class Counted:
    """Graphs that a later call runs, breaks of the first one, reads of a later one."""

    graphs: int | None
    breaks: int | None
    reads: int | None


Make = Callable[[], tuple[Any, Any, Any]]
"""Makes an object and the arguments of a call of it, positional and by keyword."""


class SideCalls:
    """Makes the calls of a side; each method answers a request."""

    def __init__(self, kind: Kind, subject: TriedCall) -> None:
        os.environ.update(kind.environment())
        self._kind = kind
        self._caller = Caller(subject, kind.trains)
        self._called = subject.obj
        self._device = _device_of(subject)

    def about(self) -> About:
        """Return what the side is."""
        obj = self._caller.subject.obj
        is_training = bool(getattr(state_holder(obj), "training", False))
        return About(title_of(obj), self._device.type, torch.get_num_threads(), is_training)

    def first(self) -> Took:
        """Return what the first call takes; the compiler is loaded before."""
        with torch.no_grad():
            if self._kind.side != "eager":
                _load(self._kind.backend, self._device, trains=self._kind.trains)
        begun = time.perf_counter()
        if self._kind.side == "eager":
            api.unpatch()
        else:
            is_mended = self._kind.side == "mended"
            obj = self._caller.subject.obj
            self._called = compiled(obj, self._kind.backend, is_mended=is_mended)
        preparing = time.perf_counter() - begun
        return self._took([preparing + self._call()])

    def settle(self) -> Took:
        """Make calls that are not measured, after which memory is."""
        found = [self._call() for _ in range(_SETTLING)]
        gc.collect()
        _forget_peak(self._device)
        return self._took(found)

    def turn(self, seconds: float) -> Took:
        """Return what calls take, of as many as there is time for, one at least."""
        gc.collect()
        if self._call() >= _LONG:  # else behind calls of other processes
            return self._took([self._call()])
        found: list[float] = []
        while not found or (sum(found) < seconds and len(found) < _MOST):
            found.append(self._call())
        return self._took(found)

    def peak(self) -> int | None:
        """Return the most bytes held since `settle`; None where the system does not say."""
        return _peak(self._device)

    def counts(self) -> Counted:
        """Return graphs, breaks and reads; what was compiled is dropped."""
        with torch.no_grad():
            if self._kind.side == "eager":
                return Counted(None, None, reads_in_eager(self._caller))
            is_mended = self._kind.side == "mended"
            subject = self._caller.subject
            found = counted(subject, is_mended=is_mended, trains=self._kind.trains)
        return Counted(found.runs, len(found.breaks), found.reads)

    def _call(self) -> float:
        with torch.no_grad():  # what trains records gradients nevertheless
            return self._caller.call(self._called)

    def _took(self, seconds: list[float]) -> Took:
        return Took(tuple(seconds), self._caller.raised)


def copied_calls(kind: Kind, subject: TriedCall) -> SideCalls:
    """Return the calls of a side in a copy of the process."""
    return SideCalls(kind, subject)


def made_calls(kind: Kind, make: Make) -> SideCalls:
    """Return the calls of a side in a new process, in which all sides draw the same weights.

    Raises:
        BcmendError: as `subject_of`, or what ``make`` raises.
    """
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)
    obj, arguments, keywords = make()
    return SideCalls(kind, subject_of(obj, arguments, keywords, backend=kind.backend))


def _device_of(subject: TriedCall) -> torch.device:
    """Return the device of the first tensor of a call, or else of a module."""
    holder = state_holder(subject.obj)
    if isinstance(holder, torch.nn.Module):
        for each in holder.parameters():
            return each.device
    for given in tensors_in((subject.arguments, subject.keywords)):
        return given.device
    return torch.device("cpu")


def _load(backend: str, device: torch.device, *, trains: bool) -> None:
    """Have the compiler loaded, with what it finds out about the machine, by a small program."""
    small = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).to(device)
    try:
        with compilations.without(), torch.set_grad_enabled(trains):
            result = torch.compile(small, backend=backend)(torch.ones(8, 8, device=device))
            if trains:
                result.sum().backward()
    except Exception as error:  # of a back end that does not work here
        text = " ".join(str(error).split())
        raise TrialError(f"the back end {backend!r} compiles nothing here: {text:.200}") from error


# Memory


def _forget_peak(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.reset_peak_memory_stats()
        return
    try:
        Path("/proc/self/clear_refs").write_text("5")  # proc(5): the peak of the resident size
    except OSError:
        _UNKNOWN.append(device)


#: Where the peak cannot be forgotten, so that it would be that of compiling.
_UNKNOWN: Final[list[torch.device]] = []


def _peak(device: torch.device) -> int | None:
    if device.type != "cpu":
        return torch.accelerator.max_memory_allocated()
    if _UNKNOWN:
        return None
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "VmHWM":
            return int(value.split()[0]) * 1024
    return None
