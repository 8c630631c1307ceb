"""What a report says of a site: planned, until a trace has given it another outcome."""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType
from typing import Any

import pytest

from bcmend.patching.installer import remove
from bcmend.patching.site_records import site_records
from bcmend.policy import DEFAULT
from bcmend.reports.outcomes import SiteRecord
from bcmend.tracing.search.falsified import weaken
from bcmend.tracing.sites import site_table
from bcmend.tracing.sites.site_table import LiveSite


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    remove()
    yield
    remove()


def _function(source: str = "return x + 1 if x.sum() > 0 else x - 1") -> FunctionType:
    scope: dict[str, Any] = {"__name__": "user.module"}
    exec(compile(f"def function(x):\n    {source}", "user.py", "exec"), scope)
    found: FunctionType = scope["function"]
    return found


def _record_and_site(function: FunctionType) -> tuple[SiteRecord, LiveSite]:
    (record,) = site_records([function], DEFAULT)
    site = site_table.find(record.name)
    assert site is not None
    return record, site


def test_a_site_that_no_trace_has_reached_is_planned() -> None:
    record, _ = _record_and_site(_function())
    assert (record.status, record.lowering, record.refusal, record.detail) == (
        "planned",
        None,
        None,
        "",
    )
    assert (record.file, record.line, record.function) == ("user.py", 2, "function")
    assert record.kind == "branch"


def test_a_site_that_was_mended_says_how_and_why() -> None:
    function = _function()
    _, site = _record_and_site(function)
    site.mended("where", "both arms are cheap")
    site.outcome.clone_bytes = 12
    record, _ = _record_and_site(function)
    assert (record.status, record.lowering) == ("mended", "where")
    assert (record.refusal, record.detail) == (None, "both arms are cheap")
    assert record.clone_bytes == 12


def test_a_refusal_of_the_last_trace_comes_before_an_earlier_lowering() -> None:
    function = _function()
    _, site = _record_and_site(function)
    site.mended("where")
    site.outcome.clone_bytes = 12
    site.refuse("arms-differ", "2 on one side")
    record, _ = _record_and_site(function)
    assert (record.status, record.lowering) == ("refused", None)
    assert (record.refusal, record.detail) == ("arms-differ", "2 on one side")
    assert record.clone_bytes is None


def test_a_site_that_is_off_comes_before_all_else() -> None:
    function = _function()
    _, site = _record_and_site(function)
    site.refuse("arms-differ")
    weaken(site.unmendable("not-captured", "KeyError: why"))
    record, _ = _record_and_site(function)
    assert (record.status, record.lowering) == ("withdrawn", None)
    assert (record.refusal, record.detail) == ("not-captured", "KeyError: why")


def test_a_site_that_is_refused_before_any_trace() -> None:
    records = site_records([_function("locals()\n    return x + 1 if x.sum() > 0 else x")], DEFAULT)
    assert [record.status for record in records] == ["refused"]
    assert all(record.refusal for record in records)


def test_a_function_without_sites_has_no_records() -> None:
    assert site_records([_function("return x + 1")], DEFAULT) == ()


def test_a_call_is_listed_at_a_line_of_a_function_or_of_one_nested_in_it() -> None:
    function = _function("y = x + 1\n    return lambda: y")
    code = function.__code__
    site = LiveSite("tests.call", "call", code, line=3)
    elsewhere = LiveSite("tests.elsewhere", "call", code, line=30)
    for each in (site, elsewhere):
        site_table.register(each)
    site.mended("substituted")
    (record,) = site_records([function], DEFAULT)
    assert (record.name, record.line, record.kind) == ("tests.call", 3, "call")
    assert (record.status, record.lowering, record.function) == (
        "mended",
        "substituted",
        "function",
    )
