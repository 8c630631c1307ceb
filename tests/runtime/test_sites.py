"""The table of live sites."""

from __future__ import annotations

from bcmend.runtime import sites
from bcmend.runtime.sites import LiveSite

CODE = (lambda: None).__code__


def test_a_site_is_found_by_its_key_until_it_is_forgotten() -> None:
    site = LiveSite("tests.a", "branch", CODE)
    sites.register(site)
    assert sites.find("tests.a") is site
    sites.forget("tests.a")
    assert sites.find("tests.a") is None


def test_a_refusal_lasts_until_the_site_is_mended() -> None:
    site = LiveSite("tests.b", "branch", CODE)
    site.refuse("arms-differ", "2 on one side")
    assert site.active
    assert site.refused == {"arms-differ": "2 on one side"}
    site.mended("where")
    assert (site.refused, site.lowering) == ({}, "where")


def test_only_what_was_mended_since_the_list_was_cleared_is_withdrawn() -> None:
    old, new = LiveSite("tests.old", "branch", CODE), LiveSite("tests.new", "branch", CODE)
    old.mended("where")
    sites.clear_recent()
    assert not sites.withdraw_recent("not-captured", "nothing was mended")
    new.mended("cond")
    assert sites.withdraw_recent("not-captured", "why")
    assert old.active
    assert (new.active, new.withdrawn, new.detail, new.lowering) == (
        False,
        "not-captured",
        "why",
        "",
    )
