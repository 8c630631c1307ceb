"""What to do about a break fits its cause, and whose code it is; and how places are called."""

from __future__ import annotations

import json as of_the_library
import sys
import types

import pytest

from bcmend.reasons import REASONS
from bcmend.reports.advice import advice_for, advice_without_a_site, meaning_of
from bcmend.reports.places import short_place, shown_path, shown_place

OWN, PACKAGE, LIBRARY = "/home/me/net.py", str(pytest.__file__), of_the_library.__file__
MOVE = "Move it out of what is compiled"


def test_of_own_code_it_is_the_hint_of_the_reason() -> None:
    for slug, reason in REASONS.items():
        assert advice_for(slug, "detail", OWN, "branch") == reason.hint
        assert meaning_of(slug, "detail") == reason.meaning
    assert advice_for("from-the-future", "", OWN) == meaning_of("from-the-future", "") == ""
    assert advice_without_a_site(OWN).startswith(MOVE)


def test_what_a_comment_switches_off_is_switched_on_by_removing_it() -> None:
    detail = "by a comment in the source"
    assert advice_for("switched-off", detail, OWN) == "Remove the comment `# bcmend: off`."
    assert "Policy" not in meaning_of("switched-off", detail)
    assert "pytest" in advice_for("switched-off", detail, PACKAGE)
    assert "Policy(off=...)" in advice_for("switched-off", "", OWN)


@pytest.mark.parametrize("file, owner", [(PACKAGE, "pytest"), (LIBRARY, "standard library")])
def test_nobody_is_told_to_edit_code_that_is_not_theirs(file: str, owner: str) -> None:
    for slug in set(REASONS) - {"switched-off", "policy-keep"}:
        for kind in ("branch", "output"):
            advice = advice_for(slug, "", file, kind)
            outside = "Policy(" in advice or "nothing can be done" in advice.lower()
            assert outside or "release of torch" in advice or "back end" in advice, (slug, advice)
    assert "Policy(one_sided=" in advice_for("arms-differ", "", file, "branch")
    assert owner in advice_for("cannot-snapshot", "", file, "output")
    assert owner in advice_without_a_site(file) and MOVE not in advice_without_a_site(file)


def test_what_the_policy_changes_is_the_same_in_all_code() -> None:
    for file in (OWN, PACKAGE):
        assert advice_for("policy-keep", "", file) == REASONS["policy-keep"].hint


def test_a_cell_of_ipython_has_its_number() -> None:
    assert shown_path("<ipython-input-2-1a2b3c4d>") == "cell 2"
    assert short_place("<ipython-input-12-1a2b3c4d>", 3) == "cell 12:3"


KERNEL = "/tmp/ipykernel_123/456.py"


def test_a_cell_of_a_kernel_has_the_number_that_the_kernel_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As IPython's ``CachingCompiler.format_code_name`` answers, of cells that it knows."""
    known = {KERNEL: ("Cell", "In[7]")}
    running = types.SimpleNamespace(compile=types.SimpleNamespace(format_code_name=known.get))
    module = types.SimpleNamespace(get_ipython=lambda: running)
    monkeypatch.setitem(sys.modules, "IPython", module)  # type: ignore[arg-type]
    assert shown_place(KERNEL, 3) == "cell 7:3"
    assert shown_path("/tmp/ipykernel_123/789.py") == "a cell"
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace())  # type: ignore[arg-type]
    assert shown_path(KERNEL) == "a cell"
    assert shown_path("/tmp/other/456.py") == "/tmp/other/456.py"
