"""The recorded releases of torch: a file each, which says where bcmend is tested with it.

Reading them imports nothing of Dynamo.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bcmend.bytecode import behavior

_FEW: Final = 2
FOLDER: Final = Path(__file__).parent

#: The facts of a release: by section and subject. What a fact is depends on the section.
Facts = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """A recorded release.

    Attributes:
        git_version: the commit that torch was built from, which all builds of a release share.
        pythons: those on which bcmend is tested with it, and works with what is equal to it.
    """

    version: str
    git_version: str
    pythons: tuple[str, ...]
    facts: Facts

    @property
    def is_tested(self) -> bool:
        """Return whether bcmend is tested with it on the running Python."""
        return behavior.PYTHON in self.pythons

    @property
    def minor(self) -> str:
        """Return the first two numbers of the version."""
        return ".".join(self.version.split(".")[:2])


@functools.cache
def releases() -> tuple[Release, ...]:
    """Return all recorded releases, the oldest first."""
    found = (read(file) for file in FOLDER.glob("*.json"))
    return tuple(sorted(found, key=lambda each: _numbers(each.version)))


def read(file: Path) -> Release:
    """Return the release of one file."""
    facts = json.loads(file.read_text(encoding="utf-8"))
    head = facts.pop("torch")
    return Release(head["version"], head["git_version"], tuple(head["tested"]), facts)


def write(release: Release, folder: Path = FOLDER) -> Path:
    """Write the file of a release, sorted, with one fact a line; return its path."""
    head = {
        "version": release.version,
        "git_version": release.git_version,
        "tested": release.pythons,
    }
    parts = [f' "torch": {json.dumps(head)}']
    for section in sorted(release.facts):
        subjects = sorted(release.facts[section].items())
        lines = [f"  {json.dumps(name)}: {_shown(fact)}" for name, fact in subjects]
        parts.append(f' "{section}": {{\n' + ",\n".join(lines) + "\n }")
    file = folder / f"{release.version}.json"
    file.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")
    return file


def _shown(fact: Any) -> str:
    """Return a fact as JSON; one of several parts has a line for each."""
    if not isinstance(fact, dict) or len(fact) < _FEW:
        return json.dumps(fact)
    parts = (f"   {json.dumps(name)}: {json.dumps(part)}" for name, part in sorted(fact.items()))
    return "{\n" + ",\n".join(parts) + "}"


def of_build(git_version: str | None) -> Release | None:
    """Return the release that was built from a commit, if it is recorded."""
    return next((each for each in releases() if each.git_version == git_version), None)


def of_version(version: str) -> Release | None:
    """Return the recorded release of a version, if there is one."""
    return next((each for each in releases() if each.version == version), None)


def nearest(version: str) -> Release:
    """Return the release that a version is compared with.

    That is the last one before it; of the same minor release, any one; else the first of all.
    """
    known, numbers = releases(), _numbers(version)
    same = [each for each in known if _numbers(each.version)[:2] == numbers[:2]]
    before = [each for each in same or known if _numbers(each.version) <= numbers]
    return before[-1] if before else (same or known)[0]


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, without what stands behind them."""
    found = []
    for part in version.partition("+")[0].split(".")[:3]:
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        found.append(int(digits or 0))
    return tuple(found)
