"""Bytecode before and after is aligned by line and instruction, and shown as text and in HTML."""

from __future__ import annotations

import itertools
from types import CodeType

import pytest

from bcmend.policy import Policy
from bcmend.reports.bytecode_pair import CodePair, by_line, pairs_of
from bcmend.reports.site_report import Report
from bcmend.rewrite.mended import Context
from bcmend.rewrite.pipeline import mend


def function(x):
    if x.sum() > 0:
        return x + 1
    print("less", x.mean())
    return [y * 2 for y in x]


def _pairs() -> tuple[CodeType, list[CodePair]]:
    code = function.__code__
    mended = mend(code, Context(__name__, globals(), Policy()))
    return mended.body, list(pairs_of(code, mended.body))


def _names(pair: CodePair, side: str) -> list[str]:
    return [getattr(row, side).split()[1] for row in pair.rows if getattr(row, side)]


def test_both_sides_have_all_their_instructions_in_order() -> None:
    body, (first, *_) = _pairs()
    for side, code in (("before", function.__code__), ("after", body)):
        (alone,) = [pair for pair in pairs_of(code, code) if pair.title == code.co_qualname]
        assert _names(first, side) == _names(alone, "before")
        assert all(row.mark == " " for row in alone.rows)


def test_what_stays_stands_beside_itself_at_its_line() -> None:
    _, (first, *_) = _pairs()
    both = [row for row in first.rows if row.mark == " "]
    assert {row.before.split()[1] for row in both} == {row.after.split()[1] for row in both}
    assert len(both) >= len(_names(first, "before")) // 2
    new = {row.line for row in first.rows if row.mark == "+"}
    assert function.__code__.co_firstlineno + 1 in new


def test_code_that_mended_code_loads_is_listed_by_the_name_it_is_loaded_by() -> None:
    _, (first, *others) = _pairs()
    loaded = [
        row.after.split("LOAD_CONST ")[1] for row in first.rows if " LOAD_CONST code " in row.after
    ]
    titles = [each.title.partition(" of ")[0] for each in others]
    assert loaded and set(loaded) <= set(titles)
    assert not any("listcomp" in title for title in titles), "it stays as it was"


def test_rows_of_a_line_stay_together() -> None:
    _, (first, *_) = _pairs()
    runs = list(by_line(first.rows))
    assert tuple(row for _, rows in runs for row in rows) == first.rows
    assert all(row.line == line for line, rows in runs for row in rows)
    assert all(one[0] != other[0] for one, other in itertools.pairwise(runs))


def test_text_and_page_show_source_and_both_sides() -> None:
    _, pairs = _pairs()
    text = str(pairs[0])
    assert "if x.sum() > 0:" in text and "new, " in text
    page = Report("f", (), 1, 1, bytecode=tuple(pairs)).to_html()
    assert "if x.sum() &gt; 0:" in page and page.count('<tr class="new">') > 10
    assert "Bytecode" not in Report("f", (), 1, 1).to_html()


def test_names_of_bcmend_are_readable() -> None:
    _, pairs = _pairs()
    shown = "".join(map(str, pairs))
    assert "bcmend_condition" in shown and shown.isascii()


@pytest.mark.parametrize("count", [0, 1])
def test_a_report_has_bytecode_only_if_asked_for(count: int) -> None:
    _, pairs = _pairs()
    report = Report("f", (), 1, 1, bytecode=tuple(pairs[:count]))
    assert len(report.to_dict()["bytecode"]) == count
