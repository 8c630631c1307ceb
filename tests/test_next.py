"""`.ci/next`: what has to be looked at for the next release is printed, and makes it fail."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: Stands for Python: says what it is run with, and fails where that has a word in it.
STAND_IN = """#!/bin/sh
case "$*" in
*recorded*) echo 2.99.0 ;;
*"$FAILS_AT"*) echo "wrong: $*"; exit 1 ;;
*) echo "right: $*" ;;
esac
"""
#: Stands for the program that opens issues, of which none is there.
LISTED = """#!/bin/sh
echo "gh $*" >>"$GH_LOG"
echo 0
"""


def _ended(tmp_path: Path, about: str, fails_at: str) -> subprocess.CompletedProcess[str]:
    for name, text in (
        ("python", STAND_IN),
        ("gh", '#!/bin/sh\necho "gh $*" >>"$GH_LOG"\necho 0\n'),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    env = {
        **os.environ,
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "PYTHON": str(tmp_path / "python"),
        "FAILS_AT": fails_at,
        "GH_TOKEN": "a token",
        "GH_LOG": str(tmp_path / "log"),
    }
    command = [ROOT / ".ci" / "next", about]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("about", ["torch", "python"])
def test_where_nothing_differs_no_issue_is_opened(tmp_path: Path, about: str) -> None:
    done = _ended(tmp_path, about, "nothing of this")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "right: " in done.stdout and not (tmp_path / "log").exists()


@pytest.mark.parametrize(
    ("about", "fails_at"),
    [("torch", "--against 2.99.0"), ("torch", "--live"), ("python", "tests.bytecode.roundtrip")],
)
def test_where_something_differs_an_issue_is_opened(
    tmp_path: Path, about: str, fails_at: str
) -> None:
    done = _ended(tmp_path, about, fails_at)
    assert done.returncode == 1
    assert "wrong: " in done.stdout
    listed, created = (tmp_path / "log").read_text(encoding="utf-8").splitlines()
    assert listed.startswith("gh issue list") and created.startswith("gh issue create")
    assert f"The next {'torch' if about == 'torch' else 'CPython'}" in created


def test_it_says_what_it_takes(tmp_path: Path) -> None:
    done = _ended(tmp_path, "else", "nothing of this")
    assert done.returncode == 2 and ".ci/next torch" in done.stdout
