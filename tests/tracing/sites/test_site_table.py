"""The table of live sites."""

from __future__ import annotations

import gc
import threading
from types import SimpleNamespace
from typing import Any

from bcmend.tracing.sites import site_table
from bcmend.tracing.sites.site_table import LiveSite

CODE = (lambda: None).__code__


def test_a_site_is_found_by_its_key_while_its_code_is_alive() -> None:
    code = CODE.replace(co_name="other")
    site = LiveSite("tests.a", "branch", code)
    site_table.register(site)
    assert site_table.find("tests.a") is site
    assert site.origin is code
    del code
    assert site_table.find("tests.a") is None


def test_a_site_that_replaced_another_does_not_go_with_that_one_s_code() -> None:
    code = CODE.replace(co_name="other")
    old, new = LiveSite("tests.a", "branch", code), LiveSite("tests.a", "branch", CODE)
    site_table.register(old)
    site_table.register(new)
    del code
    assert site_table.find("tests.a") is new


def test_a_refusal_lasts_until_the_site_is_mended() -> None:
    site = LiveSite("tests.b", "branch", CODE)
    site.refuse("arms-differ", "2 on one side")
    assert site.active
    assert site.refused == {"arms-differ": "2 on one side"}
    site.mended("where")
    assert (site.refused, site.lowering) == ({}, "where")


def _site(name: str = "tests.c", **choices: str) -> LiveSite:
    return LiveSite(name, "branch", CODE, **choices)  # type: ignore[arg-type]


def test_what_was_mended_since_the_list_was_cleared_is_recent_while_it_is_on() -> None:
    old, new = _site("tests.old"), _site("tests.new")
    old.mended("where")
    site_table.clear_recent()
    assert site_table.recent_sites() == []
    new.mended("cond")
    assert site_table.recent_sites() == [new]
    new.withdraw("not-captured")
    assert site_table.recent_sites() == []


def test_the_code_that_has_a_key_is_known_while_it_is_alive() -> None:
    one = CODE.replace(co_name="one")
    site_table.register(LiveSite("tests.key", "branch", one))
    assert site_table.code_of("tests.key") is one
    assert site_table.code_of("tests.another") is None
    del one
    gc.collect()
    assert site_table.code_of("tests.key") is None


def test_forgotten_is_what_stands_at_the_place_of_code_and_is_not_in_use() -> None:
    one, other, far = CODE.replace(co_flags=0), CODE.replace(), CODE.replace(co_name="far")
    far = far.replace(co_qualname="far")
    for key, code in (("tests.one", one), ("tests.other", other), ("tests.far", far)):
        site_table.register(LiveSite(key, "branch", code))
    site_table.forget([one], lambda: {id(other)})
    assert site_table.find("tests.one") is None
    assert site_table.find("tests.other") is not None
    assert site_table.find("tests.far") is not None


def test_sites_are_alike_under_the_same_choices_in_the_same_code() -> None:
    assert _site().is_like(_site("tests.d"))
    assert not _site().is_like(LiveSite("tests.c", "branch", CODE.replace(co_name="other")))
    for choice in ("branch", "output", "guards"):
        assert not _site().is_like(_site(**{choice: "keep"}))


def test_only_arms_that_may_have_more_in_common_later_are_worth_widening() -> None:
    site = _site()
    assert not site.is_worth_widening
    for slug, expected in [("arms-differ", True), ("alias-changed", True), ("generator", False)]:
        site.refuse(slug)
        assert site.is_worth_widening is expected


def test_a_branch_too_deep_stays_for_the_rest_of_the_outermost_call() -> None:
    site_table.begin_call()
    deep, other = _site("tests.deep"), _site("tests.other")
    deep.refuse("too-deep")
    other.refuse("arms-differ")
    assert site_table.is_refused_for_this_call(deep)
    assert not site_table.is_refused_for_this_call(other)
    site_table.begin_call()
    assert not site_table.is_refused_for_this_call(deep)


def test_the_forms_that_were_read_are_known_for_one_outermost_call() -> None:
    site_table.begin_call()
    site = _site()
    site.note_read(1)
    assert site.reads == {1}
    site_table.begin_call()
    assert site.reads == set()


def test_side_exits_are_left_out_for_one_frame_or_for_good() -> None:
    site_table.begin_call()
    site = _site()
    assert site_table.may_have_exit(site)
    site_table.leave_without_exit(site)
    assert not site_table.may_have_exit(site)
    site_table.allow_exits_again()
    assert site_table.may_have_exit(site)
    site.side_exits = False
    assert not site_table.may_have_exit(site)


def test_the_last_refusal_is_known_until_it_is_forgotten() -> None:
    site_table.forget_refusal()
    assert site_table.recent_refusal() is None
    _site().refuse("copy", "first")
    _site().refuse("generator", "second")
    assert site_table.recent_refusal() == ("generator", "second")
    site_table.forget_refusal()
    assert site_table.recent_refusal() is None


def test_what_one_thread_found_another_does_not_see() -> None:
    site_table.forget_refusal()
    thread = threading.Thread(target=lambda: _site().refuse("copy"))
    thread.start()
    thread.join()
    assert site_table.recent_refusal() is None


def _tracer(line: int) -> Any:
    return SimpleNamespace(f_globals={"__name__": "tests.module"}, lineno=line)


def test_a_call_has_one_site_for_each_line() -> None:
    code = CODE.replace(co_name="caller", co_qualname="caller")
    first = site_table.being_traced(_tracer(3), code, "copy", "call")
    assert site_table.being_traced(_tracer(3), code, "copy", "call") is first
    other = site_table.being_traced(_tracer(4), code, "copy", "call")
    assert (first.key, first.line) == ("tests.module.caller:3:copy", 3)
    assert site_table.met_at({(code.co_filename, 4)}) == [(other, code)]


def test_a_call_in_another_file_with_the_same_name_is_another_site() -> None:
    code = CODE.replace(co_name="twin", co_qualname="twin")
    moved = code.replace(co_filename="elsewhere.py")
    first = site_table.being_traced(_tracer(3), code, "copy", "call")
    assert site_table.being_traced(_tracer(3), moved, "copy", "call") is not first


def test_only_calls_are_found_by_their_line() -> None:
    code = CODE.replace(co_name="output", co_qualname="output")
    site_table.being_traced(_tracer(9), code, "print", "output")
    assert site_table.met_at({(code.co_filename, 9)}) == []
