"""Workflow commands: lines of output that GitHub Actions shows as annotations.

The form and what is escaped are those of GitHub's documentation ("Workflow commands for GitHub
Actions") and of ``packages/core/src/command.ts`` in actions/toolkit.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

_IN_MESSAGES: Final = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_IN_PROPERTIES: Final = {**_IN_MESSAGES, ":": "%3A", ",": "%2C"}


def command(
    level: str, message: str, *, file: str | None = None, line: int | None = None, title: str
) -> str:
    """Return one line that annotates a place, or the run where no file is named.

    Args:
        level: "error", "warning" or "notice".
        message: what is shown; may have several lines.
        file: a path, which is written as it is from the working directory where it is below it.
            What is no file, such as ``<string>``, is left out, and the line with it.
        line: from 1; None where it is not known.
        title: what is shown above the message.
    """
    properties: dict[str, object] = {}
    if file is not None and (path := Path(file)).is_file():
        properties["file"] = _from_here(path)
        if line is not None:
            properties["line"] = line
    properties["title"] = title
    written = ",".join(
        f"{name}={_escaped(str(value), _IN_PROPERTIES)}" for name, value in properties.items()
    )
    return f"::{level} {written}::{_escaped(message, _IN_MESSAGES)}"


def _from_here(path: Path) -> str:
    path, here = path.absolute(), Path.cwd()
    return (path.relative_to(here) if path.is_relative_to(here) else path).as_posix()


def _escaped(text: str, escapes: Mapping[str, str]) -> str:
    return "".join(escapes.get(each, each) for each in text)
