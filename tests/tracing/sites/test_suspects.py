"""The site at fault is found by switching one after the other off."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Collection, Iterator

import pytest

from bcmend.tracing.sites import site_table, suspects
from bcmend.tracing.sites.site_table import LiveSite

CODE = compile("pass", "<test>", "exec")


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    site_table.clear_recent()
    suspects.convict()
    yield
    site_table.clear_recent()
    suspects.convict()


def _sites(*lowerings: str) -> list[LiveSite]:
    return [LiveSite(f"tests.{number}", "branch", CODE) for number, _ in enumerate(lowerings)]


def _compile(
    sites: list[LiveSite], lowerings: Collection[str], fails: Callable[[set[int]], str]
) -> tuple[bool, int]:
    """Mend and fail until it works or nothing is left to be withdrawn; return which, and tries."""
    for tries in range(1, 20):
        for site, lowering in zip(sites, lowerings, strict=True):
            if site.active:
                site.mended(lowering)
        failure = fails({number for number, site in enumerate(sites) if site.active})
        if not failure:
            suspects.convict()
            return True, tries
        if not suspects.withdraw_recent("not-captured", failure):
            suspects.acquit()
            return False, tries
    raise AssertionError("it does not end")


LOWERINGS = ("deferred", "where", "cond", "guard", "while_loop", "cond")


@pytest.mark.parametrize("culprit", [2, 4, 5])
def test_of_what_asks_most_of_a_back_end_the_one_at_fault_alone_goes(culprit: int) -> None:
    sites = _sites(*LOWERINGS)
    works, _ = _compile(sites, LOWERINGS, lambda on: f"at line {len(on)}" * (culprit in on))
    assert works
    assert [number for number, site in enumerate(sites) if not site.active] == [culprit]
    assert sites[culprit].withdrawn == "not-captured"


@pytest.mark.parametrize("culprit", [0, 1, 3])
def test_all_others_go_together(culprit: int) -> None:
    sites = _sites(*LOWERINGS)
    works, tries = _compile(sites, LOWERINGS, lambda on: "wrong" * (culprit in on))
    assert works
    assert [number for number, site in enumerate(sites) if site.active] == [2, 4, 5]
    assert tries == 5


def test_two_that_fail_alike_take_all_with_them() -> None:
    sites = _sites(*LOWERINGS)
    works, _ = _compile(sites, LOWERINGS, lambda on: "wrong" * bool(on & {2, 4}))
    assert works
    assert not any(site.active for site in sites)


def test_two_that_fail_in_ways_of_their_own_go_alone() -> None:
    sites = _sites(*LOWERINGS)

    def fails(on: set[int]) -> str:
        return "no loops" if 4 in on else "no conditions" if 5 in on else ""

    assert _compile(sites, LOWERINGS, fails)[0]
    assert [number for number, site in enumerate(sites) if not site.active] == [4, 5]


def test_where_it_fails_without_them_all_are_on_again() -> None:
    sites = _sites(*LOWERINGS)
    works, _ = _compile(sites, LOWERINGS, lambda on: "wrong")
    assert not works
    assert all(site.active and not site.detail for site in sites)


def test_many_of_a_kind_are_tried_together() -> None:
    lowerings = ("cond",) * 4 + ("where",)
    sites = _sites(*lowerings)
    works, tries = _compile(sites, lowerings, lambda on: "wrong" * (3 in on))
    assert (works, tries) == (True, 2)
    assert [number for number, site in enumerate(sites) if site.active] == [4]


def test_nothing_mended_is_nothing_withdrawn() -> None:
    assert not suspects.withdraw_recent("not-captured", "wrong")


def test_a_search_ends_with_the_trace_that_it_began_in() -> None:
    one, other = _sites("cond", "cond")
    suspects.look_at(CODE)
    one.mended("cond")
    assert suspects.withdraw_recent("not-captured", "wrong")
    suspects.look_at(CODE.replace(co_name="other"))
    other.mended("cond")
    assert suspects.withdraw_recent("not-captured", "wrong")
    assert not one.active
    suspects.acquit()
    assert (one.active, other.active) == (False, True)


def test_a_search_does_not_keep_the_code_alive_that_its_trace_began_in() -> None:
    one, site = CODE.replace(co_name="one"), _sites("where")[0]
    suspects.look_at(one)
    site.mended("where")
    assert suspects.withdraw_recent("not-captured", "it fails") and site.withdrawn
    suspects.look_at(one)  # the search goes on
    assert suspects._SEARCH.failure
    reference = weakref.ref(one)
    del one
    gc.collect()
    assert reference() is None
    suspects.look_at(CODE)  # another begins
    assert not suspects._SEARCH.failure
