"""Runs a try so that nothing of it is left: in a copy of the process, or with all put back.

A copy of the process (``os.fork``) has the object, the compiler and the generators of numbers as
they are at that moment, and takes with it whatever the try does to them. It runs on one thread of
the processor, as workers of a ``DataLoader`` do. An accelerator cannot be used in a copy, and not
every system makes one: there the try gets a copy of the object and runs in this process. So it does
where it goes back and autograd has threads, as when something compiled has gone back in a build of
torch for an accelerator: then no copy of the process can. What was compiled in it is dropped then,
and compiled anew when it is called next.
"""

from __future__ import annotations

import copy
import os
import pickle
import random
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import FileIO
from typing import Any, Final, TextIO, TypeVar

import numpy
import torch

from bcmend import api
from bcmend.dynamo import compat
from bcmend.errors import TrialError

Found = TypeVar("Found")


def _states() -> tuple[Any, ...]:
    """Return the states of the generators of random numbers that every process has."""
    return random.getstate(), numpy.random.get_state(), torch.get_rng_state()


@dataclass(frozen=True, slots=True)
class TriedCall:
    """What is tried: an object, and the arguments of a call of it.

    ``later`` has those of the calls behind it; behind these all begins anew.
    All tries begin with the same ``states`` of generators: other threads of the process may draw
    meanwhile, and Python gives a copy of the process a state of its own.
    """

    obj: Any
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    states: tuple[Any, ...] = field(default_factory=_states)
    later: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = ()

    def begin(self) -> None:
        """Give the generators the states with which tries begin."""
        random.setstate(self.states[0])
        numpy.random.set_state(self.states[1])
        torch.set_rng_state(self.states[2])


class NotEnded(TrialError):
    """A copy of the process takes longer than it may."""


Try = Callable[[TriedCall], Found]


def makes_copies(*, goes_back: bool = False) -> bool:
    """Return whether tries run in copies of the process, in which those that go back can."""
    can_copy = hasattr(os, "fork") and not torch.accelerator.is_available()
    return can_copy and (not goes_back or _copies_go_back())


def _copies_go_back() -> bool:
    """Return whether autograd works in a copy of the process: of its threads there are none."""
    try:
        return _in_a_copy(TriedCall(None, (), {}), _goes_back, _SECONDS)
    except TrialError:
        return False


def _goes_back(subject: TriedCall) -> bool:
    torch.ones((), requires_grad=True).mul(2).backward()  # type: ignore[no-untyped-call]
    return True


def run_apart(
    subject: TriedCall,
    attempt: Try[Found],
    seconds: float | None = None,
    *,
    is_copied: bool | None = None,
) -> Found:
    """Return what ``attempt`` finds, which has to be plain data; leave nothing of it behind.

    ``seconds`` is how long it may take in a copy of the process, ``is_copied`` whether it runs in
    one, as ``makes_copies`` has said.

    Raises:
        TrialError: the process cannot be copied and the object cannot either, or something is
            patched in it; the copy has ended, or takes longer; or the attempt has raised something.
    """
    is_copied = makes_copies() if is_copied is None else is_copied
    return _in_a_copy(subject, attempt, seconds) if is_copied else _put_back(subject, attempt)


# A copy of the process


def _in_a_copy(subject: TriedCall, attempt: Try[Found], seconds: float | None) -> Found:
    child, source = begun_copy(subject, attempt)
    with os.fdopen(source, "rb", buffering=0) as answers:
        try:
            answer = _answer(answers, seconds)
        finally:
            if sys.exc_info()[0] is not None:
                os.kill(child, signal.SIGKILL)
            status = ended(child)
    return _found(answer, status)  # type: ignore[no-any-return]


def begun_copy(subject: TriedCall, attempt: Try[Any]) -> tuple[int, int]:
    """Return the number of a copy of the process in which a try has begun, and where it answers.

    Raises:
        TrialError: the process cannot be copied, or no copy begins.
    """
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()  # else the copy has the same text to write
    for _ in range(_COPIES):
        child, source = _copied(subject, attempt)
        has_begun = False
        try:
            has_begun = bool(select.select([source], [], [], _SECONDS)[0])
        finally:
            if not has_begun:
                os.close(source)
                os.kill(child, signal.SIGKILL)
                ended(child)
        if has_begun:
            return child, source
    raise TrialError("another thread keeps copies of the process from running: let it end first")


#: How long a copy may take to begin. It hangs where another thread was drawing random numbers, or
#: held another lock that is in the copy for ever; then the next one is tried.
_SECONDS: Final = 10.0
_COPIES: Final = 5


def _copied(subject: TriedCall, attempt: Try[Any]) -> tuple[int, int]:
    """Make a copy of the process; return its number, and where it answers."""
    source, target = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads are none of the copy's
        try:
            child = os.fork()
        except OSError as error:  # too many processes, or too little memory
            os.close(source)
            os.close(target)
            raise TrialError(f"the process cannot be copied: {error}") from error
    if child == 0:
        os.close(source)
        _serve(subject, attempt, target)
    os.close(target)
    return child, source


def ended(child: int) -> int:
    """Wait until a copy has ended; return its status, 0 where the system keeps none."""
    try:
        return os.waitpid(child, 0)[1]
    except ChildProcessError:
        return 0  # the program ignores SIGCHLD


def _found(answer: Any, status: int) -> Any:
    if answer is None:
        code = os.waitstatus_to_exitcode(status)
        raise TrialError(f"the copy of the process that made the calls has ended (status {code})")
    is_found, found = answer
    if not is_found:
        raise TrialError(f"the calls could not be tried: {found}")
    return found


def _answer(answers: FileIO, seconds: float | None) -> Any:
    end, text = None if seconds is None else time.monotonic() + seconds, b""
    while True:
        left = None if end is None else max(0.0, end - time.monotonic())
        if not select.select([answers], [], [], left)[0]:
            raise NotEnded(f"a copy of the process has not ended after {seconds:.0f} seconds")
        part = answers.read(1 << 16)
        if not part:
            break
        text += part
    return pickle.loads(text[1:]) if len(text) > 1 else None


def _serve(subject: TriedCall, attempt: Try[Any], target: int) -> None:
    """Run a try in the copy of the process, answer, and end without running finalizers."""
    try:
        with open(os.devnull, "w") as nowhere, _unheard(nowhere):
            _have_one_thread()
            subject.begin()
            os.write(target, b"+")
            for stream in (1, 2):
                os.dup2(nowhere.fileno(), stream)
            try:
                answer: Any = (True, attempt(subject))
            except BaseException as error:  # of the program or of the compiler: the user reads it
                answer = (False, "".join(traceback.format_exception_only(error)).strip())
        with os.fdopen(target, "wb") as answers:
            answers.write(pickle.dumps(answer))
    finally:
        os._exit(0)


def _have_one_thread() -> None:
    """Have nothing wait for a pool of threads or processes: none is in the copy.

    Inductor has pools of its own to compile in, and writes numbers of threads into what it compiles
    (and finds again in its cache, unless this setting is another).
    """
    torch.set_num_threads(1)
    compat.inductor_config.compile_threads = 1
    compat.inductor_config.cpp.threads = 1


# This process

PATCHED: Final = (
    "on this machine the calls are tried in this process, and something is patched in it: "
    "bcmend.unpatch() first, or use the command line"
)


def _put_back(subject: TriedCall, attempt: Try[Found]) -> Found:
    if api.is_anything_patched():
        raise TrialError(PATCHED)
    try:
        copied = copy.deepcopy(subject)
    except Exception as error:  # code of the program
        raise TrialError(
            "on this machine the calls are tried in this process on a copy of the object, and it "
            f"or its arguments cannot be copied: {type(error).__name__}: {error}"
        ) from error
    with open(os.devnull, "w") as nowhere, _random_states(), _unheard(nowhere):
        torch.compiler.reset()
        try:
            copied.begin()
            return attempt(copied)
        except Exception as error:
            text = "".join(traceback.format_exception_only(error)).strip()
            raise TrialError(f"the calls could not be tried: {text}") from error
        finally:
            api.unpatch()
            torch.compiler.reset()


@contextmanager
def _unheard(nowhere: TextIO) -> Iterator[None]:
    with redirect_stdout(nowhere), redirect_stderr(nowhere), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _random_states() -> Iterator[None]:
    states = random.getstate(), numpy.random.get_state()
    with torch.random.fork_rng():
        try:
            yield
        finally:
            random.setstate(states[0])
            numpy.random.set_state(states[1])
