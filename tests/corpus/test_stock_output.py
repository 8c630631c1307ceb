"""The table of `docs/output.md` is what the command finds, and every kind of verdict is in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.against_stock_logging import PATTERNS, Row, Verdict, compared, table
from corpus.patterns import pattern_named

PAGE = (Path(__file__).parents[2] / "docs" / "output.md").read_text(encoding="utf-8")

#: Equal in both; changed later; lost in a function that is called; breaks.
SAMPLE = (
    "print-of-text",
    "print-of-a-tensor-changed-later",
    "message-in-a-function-that-is-called",
    "print-of-objects",
)


@pytest.mark.parametrize("name", SAMPLE)
def test_the_page_says_what_the_command_finds(name: str) -> None:
    (row,) = compared([pattern_named(name)])
    assert f"| {name} | {row.stock} | {row.mended} |" in PAGE.splitlines()


def test_the_page_has_a_row_for_every_program() -> None:
    table = PAGE.partition("\n## The programs\n")[2]
    rows = [line.split(" | ")[0].strip("| ") for line in table.splitlines() if line[:2] == "| "]
    assert rows[1:] == [each.name for each in PATTERNS]


def test_a_table_counts_what_is_whole_and_equal() -> None:
    good, lost = Verdict(whole=True, text="", rest=""), Verdict(True, "1 of 2 lines lost", "")
    broken = Verdict(whole=False, text="", rest="")
    page = table([Row("one", lost, good), Row("two", broken, good)])
    assert "| one | one graph, 1 of 2 lines lost | one graph, equal |" in page
    assert "| two | breaks, equal | one graph, equal |" in page
    assert "| of 2 programs | one graph | equal | both |" in page
    assert "| stock torch.compile | 1 | 1 | 0 |" in page
    assert "| bcmend | 2 | 2 | 2 |" in page
