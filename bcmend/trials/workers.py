"""Processes that answer requests, one after another, until they are closed.

A worker is a copy of the process, which has the object as it is (`apart`), or a new process, which
makes the object itself: the one where the process can be copied, the other where it cannot, and
where a command line says how the object is made. What either computes changes nothing here.

Requests and answers are pickles. A request names a method of the handler, an object that the
process makes at its start; an answer is what the method returns, or has raised.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import IO, Any, Final

from bcmend.errors import TrialError
from bcmend.trials.apart import TriedCall, begun_copy, ended

#: Makes what answers, in the process that does.
MakeHandler = Callable[[], object]


class WorkerEnded(TrialError):
    """A process has ended that was to answer."""


@dataclass(slots=True)
class Worker:
    """A process that answers.

    Attributes:
        requests, answers: what is sent to it, and what it sends.
        wait: waits for its end, and returns its status.
        kill: has it end at once.
    """

    requests: IO[bytes]
    answers: IO[bytes]
    wait: Callable[[], int]
    kill: Callable[[], object]
    _is_closed: bool = field(default=False, init=False)

    def ask(self, name: str, *arguments: Any) -> Any:
        """Return what a method of the handler returns.

        Raises:
            WorkerEnded: the process has ended, as one that needs more memory than there is.
            BcmendError: the method has raised one; a ``TrialError`` for any other exception.
        """
        try:
            _send(self.requests, (name, arguments))
            has_returned, answer = pickle.load(self.answers)
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            self._is_closed = True
            self.kill()
            raise WorkerEnded(f"the process has ended (status {self.wait()})") from error
        if not has_returned:
            raise answer
        return answer

    def close(self) -> None:
        """End the process."""
        if not self._is_closed:
            self._is_closed = True
            self.kill()
            self.wait()
        for each in (self.requests, self.answers):
            _OURS.discard(each.fileno() if not each.closed else -1)
            each.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


#: The ends of pipes that this process holds. A copy that kept one would keep another from its end.
_OURS: Final[set[int]] = set()


def copied_worker(subject: TriedCall, make: MakeHandler) -> Worker:
    """Return a worker that is a copy of the process.

    Raises:
        TrialError: the process cannot be copied.
    """
    (requests, sent), (received, answers) = os.pipe(), os.pipe()
    serve = partial(_serve_in_copy, make, requests, answers, (*_OURS, sent, received))
    try:
        child, begun = begun_copy(subject, serve)
    except BaseException:
        os.close(sent)
        os.close(received)
        raise
    finally:
        os.close(requests)
        os.close(answers)
    os.close(begun)
    _OURS.update((sent, received))
    return Worker(
        os.fdopen(sent, "wb"),
        os.fdopen(received, "rb"),
        lambda: os.waitstatus_to_exitcode(ended(child)),
        partial(_kill, child),
    )


def _kill(child: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)


def _serve_in_copy(
    make: MakeHandler, requests: int, answers: int, theirs: tuple[int, ...], _: TriedCall
) -> None:
    for each in theirs:
        os.close(each)
    with os.fdopen(requests, "rb") as source, os.fdopen(answers, "wb") as target:
        _serve(make, source, target)


def new_worker(make: MakeHandler, environment: dict[str, str]) -> Worker:
    """Return a worker that is a new process, with more variables of the environment.

    Raises:
        TrialError: what makes the handler cannot be sent there.
    """
    try:
        sent = pickle.dumps(make)
    except Exception as error:  # code of the program
        raise TrialError(
            "on this machine the calls are made in new processes, and the object or its arguments "
            f"cannot be sent there: {type(error).__name__}: {error}; use the command line"
        ) from error
    # Modules are found there where they are found here.
    paths = os.pathsep.join(os.path.abspath(each) for each in sys.path)
    process = subprocess.Popen(
        [sys.executable, "-c", "from bcmend.trials import workers; workers.main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **environment, "PYTHONPATH": paths},
    )
    assert process.stdin is not None and process.stdout is not None
    with suppress(OSError):  # it has ended: the first request says so
        _send(process.stdin, sent)  # as one piece, which is read whole where loading it fails
    return Worker(process.stdin, process.stdout, process.wait, process.kill)


_NOT_HERE: Final = (
    "on this machine the calls are made in new processes, and the object or its arguments cannot "
    "be had there: {}: {}; have their classes in a module that can be imported, or use the command "
    "line"
)


def main() -> None:
    """Answer in a new process; what is written to its streams by others is lost."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with os.fdopen(os.dup(0), "rb") as source, os.fdopen(os.dup(1), "wb") as target:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        try:
            make = pickle.loads(pickle.load(source))
        except Exception as error:  # code of the program
            make = partial(_raise, TrialError(_NOT_HERE.format(type(error).__name__, error)))
        _serve(make, source, target)
    os._exit(0)  # without finalizers, as a copy


def _raise(error: Exception) -> None:
    raise error


def _serve(make: MakeHandler, requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer until there is nobody to ask; Ctrl-C is for the process that asks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    handler: object = None
    while True:
        try:
            name, arguments = pickle.load(requests)
        except EOFError:
            return
        try:
            handler = make() if handler is None else handler
            answer: Any = (True, getattr(handler, name)(*arguments))
        except BaseException as error:  # of the program or of the compiler: the user reads it
            answer = (False, _shown(error))
        _send(answers, answer)


def _shown(error: BaseException) -> Exception:
    """Return an exception that can be sent: one of bcmend's as it is."""
    if isinstance(error, Exception) and type(error).__module__.startswith("bcmend."):
        return error
    return TrialError("".join(traceback.format_exception_only(error)).strip())


def _send(target: IO[bytes], value: object) -> None:
    pickle.dump(value, target)
    target.flush()
