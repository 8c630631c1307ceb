"""Streams whose text goes somewhere else, and torch's loggers without a voice."""

from __future__ import annotations

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
        for name, each in known.items()
        if is_of_compilers(name)
        for handler in getattr(each, "handlers", ())
    }
    for each in handlers:
        each.addFilter(_refuse)
    try:
        yield
    finally:
        for each in handlers:
            each.removeFilter(_refuse)


def _refuse(record: logging.LogRecord) -> bool:
    return False
