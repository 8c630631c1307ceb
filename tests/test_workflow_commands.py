"""Workflow commands of GitHub: one line each, escaped as GitHub reads it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bcmend.reports.explanation import Cause, Explanation, Side, Treatment
from bcmend.reports.verdict import Difference, Verdict
from bcmend.reports.workflow_commands import command

SIDE = Side(2, 1, 3, 0.5, 0, 2.0, 1.0, "")
REFUSED = Treatment("m.f:3:branch", "branch", "refused", "arm-untraceable: open", "Move it.")


def _explanation(file: str, mended: int) -> Explanation:
    cause = Cause(file, 3, "f", "if x:", ("",), "Branch", "GB1", "100% so.", 1, mended, (REFUSED,))
    side = replace(SIDE, breaks=mended)
    return Explanation("Net", "2.13.0", "eager", True, False, 0.5, "", SIDE, side, (cause,))


def test_what_ends_a_part_is_escaped() -> None:
    found = command("error", "100%: a,b\r\nc", title="50%, of:\r\nall")
    assert found == "::error title=50%25%2C of%3A%0D%0Aall::100%25: a,b%0D%0Ac"


def test_a_path_is_from_the_working_directory_where_it_is_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    for folder in (here, tmp_path):
        (folder / "a, b.py").write_text("")
    monkeypatch.chdir(here)
    inside = command("error", "", file=str(here / "a, b.py"), line=1, title="")
    assert inside == "::error file=a%2C b.py,line=1,title=::"
    outside = command("error", "", file=str(tmp_path / "a, b.py"), title="")
    written = (tmp_path / "a, b.py").as_posix().replace(",", "%2C").replace(":", "%3A")
    assert outside == f"::error file={written},title=::"
    assert command("error", "", file="<string>", line=1, title="x") == "::error title=x::"


def test_each_break_that_remains_is_an_error_and_the_figures_are_a_notice() -> None:
    error, notice = _explanation(__file__, 1).to_github().splitlines()
    place, _, message = error.removeprefix("::").partition("::")
    assert place.endswith("test_workflow_commands.py,line=3,title=graph break%3A GB1 Branch")
    assert message.startswith("100%25 so.%0Abcmend: branch still breaks the graph: arm-untraceable")
    assert message.endswith("arm-untraceable: open%0Awhat to do: Move it.")
    assert notice.startswith("::notice title=bcmend%3A Net::graphs: 2 stock, 2 mended%0A")


def test_what_is_mended_is_a_notice_alone() -> None:
    found = _explanation(__file__, 0)
    assert found.is_mended and found.to_github().startswith("::notice ")
    assert not _explanation(__file__, 1).is_mended


def test_a_call_that_raises_when_it_is_mended_alone_is_an_error() -> None:
    found = _explanation(__file__, 0)
    mended = replace(found, mended=replace(found.mended, raised="ValueError: x"))
    assert not mended.is_mended
    assert mended.to_github().startswith("::error title=bcmend%3A Net::the call raises mended: Val")
    assert replace(mended, eager_raised="ValueError: x").is_mended


def test_a_difference_is_an_error_and_else_there_is_a_notice() -> None:
    equal = Verdict("Net", "2.13.0", "eager", 2, False, True, None, ())
    assert equal.to_github().startswith("::notice title=bcmend%3A Net::bcmend: Net: no site was")
    differing = replace(equal, difference=Difference(1, "result", "result[0]", "1", "2", False))
    assert differing.to_github().startswith("::error title=bcmend%3A Net::bcmend: Net: differs")
    assert "%0A    eager   1%0A    mended  2%0A" in differing.to_github()
