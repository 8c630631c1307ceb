"""Runs a model once and keeps everything that it showed: its output and what it logged or warned.

Relies on transformers sending its records to the logger named "transformers", and on its
`warning_once` being cached for the life of the process, so the cache is emptied first.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

import torch
import transformers


@dataclass(frozen=True, slots=True)
class Line:
    """One log record or warning: its logger or category, its level, its text."""

    channel: str
    level: str
    text: str


@dataclass(frozen=True, slots=True)
class Observation:
    """What one call returned and the lines that it wrote, in order."""

    output: object
    lines: tuple[Line, ...]


class _Collector(logging.Handler):
    def __init__(self, lines: list[Line]) -> None:
        super().__init__(logging.DEBUG)
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(Line(record.name, record.levelname, record.getMessage()))


def _is_the_compiler_speaking(filename: str, text: str) -> bool:
    """Return whether a warning is about compilation: eager gives none, so it is no difference."""
    compiler_directories = (
        "/torch/_dynamo/",
        "/torch/_inductor/",
        "/torch/fx/",
        "/torch/_functorch/",
    )
    return "Dynamo" in text or any(part in filename for part in compiler_directories)


@contextmanager
def collected_lines() -> Iterator[list[Line]]:
    """Collects log records of transformers and all warnings, in one list, and shows none."""
    lines: list[Line] = []

    def keep_warning(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if not _is_the_compiler_speaking(filename, str(message)):
            lines.append(Line(category.__name__, "WARNING", str(message)))

    logger = logging.getLogger("transformers")
    collector = _Collector(lines)
    handlers = logger.handlers[:]
    transformers.utils.logging.warning_once.cache_clear()
    logger.handlers[:] = [collector]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = keep_warning
            yield lines
    finally:
        logger.handlers[:] = handlers


def observe(call: Callable[[], object], *, seed: int) -> Observation:
    """Calls `call` without gradients, from `seed`, and returns what it showed."""
    with collected_lines() as lines, torch.no_grad():
        torch.manual_seed(seed)
        output = call()
    return Observation(output, tuple(lines))
