"""Failures as files: each a minimised program under corpus/regressions, with where it came from.

A file is a module: `PROGRAM`, `CALLS`, `TRAINING`, `ORACLE`, and `OPEN`, what differs as long as it
does. Once it is mended, `OPEN` is emptied and the file is a regression test.
"""

from __future__ import annotations

import hashlib
import runpy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.fuzz.programs import Program

FOLDER: Final = Path(__file__).parents[2] / "corpus" / "regressions"

_FILE: Final = '''\
"""Found by `python -m tests.fuzz`: program {seed}, made smaller, with the oracle "{oracle}"."""

ORACLE = {oracle!r}
OPEN = {what!r}
TRAINING = {training!r}
POLICY = {policy!r}
CALLS = (
{calls})
PROGRAM = """
{body}"""
'''


@dataclass(frozen=True, slots=True)
class Saved:
    """A program that has failed; `open` says how it still does, and is empty if it does not."""

    name: str
    oracle: str
    open: str
    program: Program


def save(program: Program, oracle: str, what: str, seed: int, folder: Path = FOLDER) -> Path:
    """Write a failure down; return its file, whose name tells equal programs."""
    calls = "".join(f"    {each!r},\n" for each in program.calls)
    text = _FILE.format(
        seed=seed,
        oracle=oracle,
        what=what,
        training=program.training,
        policy=program.policy,
        calls=calls,
        body=program.body.replace("\\", "\\\\"),
    )
    name = hashlib.sha256(f"{program.text}{program.training}".encode()).hexdigest()[:10]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"fuzz_{name}.py"
    path.write_text(text)
    return path


def saved(folder: Path = FOLDER) -> Iterator[Saved]:
    """Yield all failures that were written down, in the order of their names."""
    for path in sorted(folder.glob("fuzz_*.py")):
        found = runpy.run_path(str(path))
        body, policy = found["PROGRAM"].lstrip("\n"), found.get("POLICY", "")
        program = Program(body, found["CALLS"], found["TRAINING"], policy)
        yield Saved(path.stem, found["ORACLE"], found["OPEN"], program)
