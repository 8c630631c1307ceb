"""The table of docs/works_with.md has a row for each test of this folder, and names tests alone."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
HERE: Final = Path(__file__).parent
_NAMED: Final = re.compile(r"`(tests/\S+\.py)::(test_\w+)`")


def _rows() -> list[str]:
    lines = (ROOT / "docs" / "works_with.md").read_text(encoding="utf-8").splitlines()
    rows = [each for each in lines if each.startswith("| ")]
    return [each for each in rows if not each.startswith("| with |")]


def _tests_in(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    functions = (each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef))
    return {each.name for each in functions if each.name.startswith("test_")}


def test_every_row_names_tests_that_there_are() -> None:
    rows = _rows()
    assert len(rows) > 20
    for row in rows:
        named = _NAMED.findall(row)
        assert named, row
        for file, test in named:
            assert test in _tests_in(ROOT / file), row


def test_every_test_of_this_folder_is_in_a_row() -> None:
    named = {(file, test) for row in _rows() for file, test in _NAMED.findall(row)}
    for file in HERE.glob("test_*.py"):
        if file.name != Path(__file__).name:
            path = file.relative_to(ROOT).as_posix()
            assert {test for at, test in named if at == path} == _tests_in(file)
