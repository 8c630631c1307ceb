"""The table of live sites."""

from __future__ import annotations

import gc
import threading
from types import SimpleNamespace
from typing import Any

from bcmend.policy import Policy
from bcmend.tracing.search.assumptions import Claim, Finding, begin_call
from bcmend.tracing.search.falsified import weaken
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
    assert site.outcome.refused == {"arms-differ": "2 on one side"}
    site.mended("where")
    assert (site.outcome.refused, site.outcome.lowering) == ({}, "where")


def _site(name: str = "tests.c", **choices: Any) -> LiveSite:
    return LiveSite(name, "branch", CODE, Policy(**choices))


def test_what_was_mended_since_the_list_was_cleared_is_recent_while_it_is_on() -> None:
    old, new = _site("tests.old"), _site("tests.new")
    old.mended("where")
    site_table.clear_recent()
    assert site_table.recent_sites() == []
    new.mended("cond")
    assert site_table.recent_sites() == [new]
    weaken(new.unmendable("not-captured"))
    assert site_table.recent_sites() == []


def test_the_code_that_has_a_key_is_known_while_it_is_alive() -> None:
    one = CODE.replace(co_name="one")
    site_table.register(LiveSite("tests.key", "branch", one))
    assert site_table.code_with_site("tests.key") is one
    assert site_table.code_with_site("tests.another") is None
    del one
    gc.collect()
    assert site_table.code_with_site("tests.key") is None


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
    for choice, value in [("branch", "cond"), ("output", "keep"), ("guards", "keep")]:
        assert not _site().is_like(_site(**{choice: value}))
    assert _site().is_like(_site(off=("another",)))


def test_only_arms_that_may_have_more_in_common_later_are_worth_widening() -> None:
    site = _site()
    assert not site.is_worth_widening
    for slug, expected in [("arms-differ", True), ("alias-changed", True), ("generator", False)]:
        site.refuse(slug)
        assert site.is_worth_widening is expected


def test_a_branch_whose_draws_gradients_need_stays_for_the_rest_of_the_outermost_call() -> None:
    begin_call()
    drawing, other = _site("tests.drawing"), _site("tests.other")
    drawing.refuse("random-under-gradients")
    other.refuse("arms-differ")
    assert not drawing.holds(Claim.MENDED_NOW)
    assert other.holds(Claim.MENDED_NOW)
    begin_call()
    assert drawing.holds(Claim.MENDED_NOW)


def test_a_form_that_shares_is_first_kept_apart_and_then_given_up() -> None:
    site = _site()
    assert site.shares(1) == Finding(Claim.SHARED, site, 1)
    weaken(site.shares(1))
    assert site.shares(1) == Finding(Claim.NEW, site, 1)
    assert site.shares(0) == Finding(Claim.SHARED, site, 0)


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
    first = site_table.site_being_traced(_tracer(3), code, "copy", "call")
    assert site_table.site_being_traced(_tracer(3), code, "copy", "call") is first
    other = site_table.site_being_traced(_tracer(4), code, "copy", "call")
    assert (first.key, first.line) == ("tests.module.caller:3:copy", 3)
    assert site_table.met_at({(code.co_filename, 4)}) == [(other, code)]


def test_a_call_in_another_file_with_the_same_name_is_another_site() -> None:
    code = CODE.replace(co_name="twin", co_qualname="twin")
    moved = code.replace(co_filename="elsewhere.py")
    first = site_table.site_being_traced(_tracer(3), code, "copy", "call")
    assert site_table.site_being_traced(_tracer(3), moved, "copy", "call") is not first


def test_only_calls_are_found_by_their_line() -> None:
    code = CODE.replace(co_name="output", co_qualname="output")
    site_table.site_being_traced(_tracer(9), code, "print", "output")
    assert site_table.met_at({(code.co_filename, 9)}) == []


def test_sites_may_go_while_the_table_is_gone_over() -> None:
    def make(name: str) -> None:
        """Register a site whose code goes when garbage is collected."""

        def owner() -> None: ...

        owner.__code__ = CODE.replace(co_name=name)
        owner.itself = owner  # type: ignore[attr-defined]
        site_table.register(LiveSite(f"tests.{name}", "branch", owner.__code__))

    before = gc.get_threshold()
    gc.collect()
    gc.disable()
    try:
        for number in range(500):
            make(f"gone{number}")
        gc.set_threshold(gc.get_count()[0] + 50)
        gc.enable()
        site_table.forget_unplanned()
    finally:
        gc.set_threshold(*before)
        gc.enable()
    assert site_table.find("tests.gone0") is None
