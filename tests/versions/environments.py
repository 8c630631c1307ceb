"""The environments that tests are run in: given ones, or one made for each pair."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bcmend.dynamo.contract import recorded
from tests.versions.record import Pair

ROOT: Final = Path(__file__).parents[2]
_CLASSIFIER: Final = "Programming Language :: Python :: "
_ASK: Final = (
    "import json; from tests.versions.record import running as r;"
    " print(json.dumps([r().release, r().python]))"
)


class NotMade(Exception):
    """An environment cannot be made, or used; the message says why."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A Python with torch and all that the tests need."""

    pair: Pair
    executable: Path


def given(executable: Path) -> Environment:
    """Return what an existing environment is. Raises ``NotMade`` if it has no torch."""
    done = _run(str(executable), "-c", _ASK)
    release, python = json.loads(done)
    return Environment(Pair(release, python), executable)


def pairs() -> Iterator[tuple[Pair, Path]]:
    """Yield each release with each Python that it is tested on, and its interpreter, if here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = [each.removeprefix(_CLASSIFIER) for each in project["classifiers"]]
    here = {each: path for each in versions if (path := _interpreter(each)) is not None}
    for release in recorded.releases():
        for python in release.pythons:
            if python in here:
                yield Pair(release.version, python), here[python]


def _interpreter(version: str) -> Path | None:
    """Return the interpreter of a version, of the path or of pyenv."""
    if version.count(".") != 1:
        return None
    of_pyenv = (Path.home() / ".pyenv" / "versions").glob(f"{version}*/bin/python")
    for candidate in (shutil.which(f"python{version}"), *of_pyenv):
        if candidate is not None:
            try:
                said = _run(str(candidate), "-c", "import sys; print(*sys.version_info[:2])")
            except NotMade:
                continue  # a shim of pyenv for a version that is not chosen
            if said.split() == version.split("."):
                return Path(candidate)
    return None


def constraints_of(release: str) -> str:
    """Return the constraints of the project with that release of torch, for any Python.

    Raises ``NotMade`` if the release is not one that is tested.
    """
    if release not in {each.version for each in recorded.releases() if each.pythons}:
        raise NotMade(f"torch {release} is not among the tested releases")
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    kept = (each for each in lines if not each.startswith("torch=="))
    return "\n".join([f"torch=={release}", *kept, ""])


def made(pair: Pair, interpreter: Path, folder: Path) -> Environment:
    """Return the environment of a pair below a folder, made unless it is there as it has to be.

    Raises ``NotMade`` with the last words of pip.
    """
    place = folder / f"torch-{pair.release}-python-{pair.python}"
    executable, mark = place / "bin" / "python", place / "installed"
    constraints = constraints_of(pair.release)
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    wanted = "\n".join([str(ROOT), constraints, project])
    if not mark.exists() or mark.read_text(encoding="utf-8") != wanted:
        _run(str(interpreter), "-m", "venv", "--clear", str(place))
        written = place / "constraints.txt"
        written.write_text(constraints, encoding="utf-8")
        pip = (str(executable), "-m", "pip", "install", "--quiet", "-c", str(written))
        _run(*pip, "-e", f"{ROOT}[test]")
        mark.write_text(wanted, encoding="utf-8")
    return Environment(pair, executable)


def _run(*command: str) -> str:
    """Return what a command prints. Raises ``NotMade`` if it fails or is not there."""
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise NotMade(f"{command[0]}: {error}") from error
    if done.returncode:
        words = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise NotMade(f"{command[0]}: {words[-1]}")
    return done.stdout
