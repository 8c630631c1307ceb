"""Streams whose text goes somewhere else, and torch's loggers without a voice."""

from __future__ import annotations

import functools
import io
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Stream(io.TextIOBase):
    """A stream that gives what is written to a function."""

    def __init__(self, take: Callable[[str], None]) -> None:
        self._take = take

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if text:
            self._take(text)
        return len(text)


def is_of_compilers(logger: str) -> bool:
    """Return whether a logger is torch's or bcmend's own."""
    return logger.partition(".")[0] == "torch" or logger == "bcmend"


@contextmanager
def torch_writes_nothing() -> Iterator[None]:
    """Mute the handlers of torch's loggers, which from 2.15 on follow ``sys.stderr``."""
    known = logging.getLogger().manager.loggerDict
    handlers = {
        handler: None
        for name in _of_compilers(len(known))
        for handler in getattr(known[name], "handlers", ())
    }
    for each in handlers:
        each.addFilter(_refuse)
    try:
        yield
    finally:
        for each in handlers:
            each.removeFilter(_refuse)


@functools.lru_cache(maxsize=1)
def _of_compilers(count: int) -> tuple[str, ...]:
    """Return the names of torch's loggers; ``count`` is how many there are, and grows alone."""
    known = logging.getLogger().manager.loggerDict
    return tuple(name for name in list(known) if is_of_compilers(name))


def _refuse(record: logging.LogRecord) -> bool:
    return False
