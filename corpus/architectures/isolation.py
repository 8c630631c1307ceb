"""Runs one piece of work in a process of its own, with limits of time and of memory.

A crash of that process, or its end by a limit, is told as its result. The parent must not have
computed with torch before: a forked process cannot use the threads of its parent.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, TypeVar

__all__ = ["Limits", "Stopped", "isolated"]

Found = TypeVar("Found")
OnStage = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a process may use: seconds of wall time, and bytes of address space."""

    seconds: float = 600.0
    memory: int = 14 << 30


@dataclass(frozen=True, slots=True)
class Stopped:
    """Work without a result: the stage that it was in, and how it ended."""

    stage: str
    reason: str


def isolated(work: Callable[[OnStage], Found], limits: Limits) -> Found | Stopped:
    """Return what ``work`` returns in a process of its own, or how that process ended.

    ``work`` gets a function that it tells its stages to. What it raises is an end like others.
    """
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_run, args=(work, limits, sender))
    child.start()
    sender.close()
    try:
        return _result(receiver, child, time.monotonic() + limits.seconds)
    finally:
        _end(child)
        receiver.close()


def _run(work: Callable[[OnStage], Any], limits: Limits, sender: Connection) -> None:
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory, limits.memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        sender.send(("result", work(lambda stage: sender.send(("stage", stage)))))
    except BaseException as error:
        # whatever ends this work ends this process alone, and is a row of the table
        first = next(iter(str(error).splitlines()), "")
        sender.send(("raised", f"{type(error).__name__}: {first}"))


def _result(receiver: Connection, child: Any, end: float) -> Any:
    stage = "build"
    try:
        while receiver.poll(max(0.0, end - time.monotonic())):
            kind, value = receiver.recv()
            if kind == "result":
                return value
            if kind == "raised":
                return Stopped(stage, value)
            stage = value
    except EOFError:
        child.join()
        return Stopped(stage, _told(child.exitcode))
    return Stopped(stage, "no result within the time limit")


def _told(code: int) -> str:
    if code < 0:
        return f"ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def _end(child: Any) -> None:
    """End a process and the compilers that it has started."""
    if child.is_alive():
        child.join(1.0)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.join()
