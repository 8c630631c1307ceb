"""What is assumed no more, of what, and for how long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bcmend.tracing.search.assumptions import Claim, Finding, Lifetime, assume_again, begin_call
from bcmend.tracing.search.falsified import weaken
from bcmend.tracing.sites.site_table import LiveSite

PAGE = Path(__file__).parents[3] / "docs" / "search.md"


def _site(name: str = "tests.site") -> LiveSite:
    return LiveSite(name, "branch", (lambda: None).__code__)


@pytest.fixture(autouse=True)
def _call() -> Iterator[None]:
    begin_call()
    yield
    begin_call()


def test_a_claim_holds_until_it_is_falsified_and_only_of_what_it_was_falsified_for() -> None:
    site, other = _site(), _site()
    assert weaken(Finding(Claim.SHARED, site, 1, evidence="why"))
    assert not site.holds(Claim.SHARED, 1)
    assert site.holds(Claim.SHARED, 0) and site.holds(Claim.NEW, 1)
    assert other.holds(Claim.SHARED, 1)
    found = site.found(Claim.SHARED, 1)
    assert found is not None and found.evidence == "why"
    assert not weaken(Finding(Claim.SHARED, site, 1)), "it is known"
    assert site.all_found(Claim.SHARED) == [1]


@pytest.mark.parametrize("claim", Claim, ids=lambda claim: claim.name)
def test_only_what_holds_for_a_call_is_assumed_again_in_the_next(claim: Claim) -> None:
    site = _site()
    weaken(Finding(claim, site))
    assert not site.holds(claim)
    begin_call()
    assert site.holds(claim) is (claim.value.lifetime is Lifetime.CALL)


def test_what_one_call_found_another_thread_does_not_see() -> None:
    site = _site()
    weaken(Finding(Claim.READ_APART, site, 0), Finding(Claim.DROPPED, site, 0))
    seen: list[bool] = []

    def look() -> None:
        seen.extend([site.holds(Claim.READ_APART, 0), site.holds(Claim.DROPPED, 0)])

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [True, False]


def test_what_is_assumed_again_can_be_falsified_again() -> None:
    site = _site()
    for claim in (Claim.MENDED, Claim.READ_APART):
        assert weaken(Finding(claim, site))
        assume_again(site, claim)
        assert site.holds(claim)
        assert weaken(Finding(claim, site))


def test_a_trace_that_reads_the_findings_does_not_see_them_change() -> None:
    site = _site()
    before = site.findings
    weaken(Finding(Claim.MENDED, site))
    assert before == {}


def test_the_page_lists_every_claim() -> None:
    rows = [
        f"| `{claim.name}` | {row.meaning} | {row.instead} "
        f"| {'anew' if row.rewrites else 'the same'} | {row.lifetime.value or 'until unpatched'} |"
        for claim, row in ((claim, claim.value) for claim in Claim)
    ]
    text = PAGE.read_text(encoding="utf-8")
    assert [row for row in rows if row not in text] == []
    assert text.count("\n| `") == len(rows)


def test_no_two_claims_say_the_same() -> None:
    assert len({claim.value.meaning for claim in Claim}) == len(Claim)
