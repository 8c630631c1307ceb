"""A process that reads files for the scan, since damaged ones can end or hang the process.

`marshal` and CPython's readers of line tables trust the bytes that they are given, so that a
damaged `.pyc` file may be read past its end, and a source file may be nested too deep for the
compiler. The process is begun anew after each file that ended it.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from contextlib import redirect_stdout, suppress
from types import TracebackType
from typing import Any, BinaryIO, Final

from bcmend.scan.found_sites import FoundSite, UnreadableFile, one_line

_SECONDS: Final = 60.0  # a large module takes one
_MEMORY: Final = 4 << 30  # bytes of address space; a module takes some 100 MiB
_MAIN: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from bcmend.scan.reading_process import serve; serve()"
)


class ReadingProcess:
    """Reads files in a process of its own, for the length of a ``with`` block."""

    def __init__(self, seconds: float = _SECONDS) -> None:
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ReadingProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._end()

    def sites_in(self, data: bytes, file: str) -> tuple[list[FoundSite], list[str]]:
        """Return what `planned_sites.sites_in` returns, by the process.

        Raises:
            UnreadableFile: nothing of the file can be read, or reading it has ended the process.
        """
        process = self._process or self._begin()
        assert process.stdin is not None and process.stdout is not None
        late = threading.Event()

        def give_up() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(self._seconds, give_up)
        timer.start()
        try:
            pickle.dump((data, file), process.stdin)
            process.stdin.flush()
            answer = pickle.load(process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            self._end()
            if late.is_set():
                raise UnreadableFile(f"reading it takes more than {self._seconds:g} s") from error
            raise UnreadableFile(f"reading it ends the process ({_end_of(process)})") from error
        finally:
            timer.cancel()
        if isinstance(answer, str):
            raise UnreadableFile(answer)
        return answer  # type: ignore[no-any-return]

    def _begin(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-c", _MAIN, json.dumps(sys.path)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with process:  # closes its streams, and waits for it
            with suppress(OSError):
                if process.stdin is not None:
                    process.stdin.close()
            try:
                process.wait(1.0)
            except subprocess.TimeoutExpired:
                process.kill()


def _end_of(process: subprocess.Popen[Any]) -> str:
    code = process.returncode
    if code >= 0:
        return f"exit status {code}"
    with suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"


def serve() -> None:
    """Read files that come from standard input until it ends, and write what is found."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one that reads the answers ends this one
    source, target = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    _limit_memory()
    from bcmend.scan.planned_sites import sites_in

    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        os.dup2(nowhere.fileno(), 1)  # xdis prints a traceback for a file that it cannot read
        while (request := _next(source)) is not None:
            try:
                answer: object = sites_in(*request)
            except UnreadableFile as error:
                answer = one_line(error)
            pickle.dump(answer, target)
            target.flush()


def _next(source: BinaryIO) -> tuple[bytes, str] | None:
    try:
        return pickle.load(source)  # type: ignore[no-any-return]
    except EOFError:
        return None


def _limit_memory() -> None:
    """Have an allocation that damaged bytes ask for fail, before it makes others fail."""
    with suppress(ImportError, OSError, ValueError):  # not on every system
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
