"""A trace ends when it has falsified what it assumed, and only then."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bcmend.dynamo import compat
from bcmend.tracing.search import log, strict
from bcmend.tracing.search.assumptions import Claim, Finding, begin_call
from bcmend.tracing.search.falsified import Endless, Falsified, falsify, weaken
from bcmend.tracing.sites.site_table import LiveSite


def _code() -> None:
    """Stand for what is traced."""


@pytest.fixture
def site() -> Iterator[LiveSite]:
    begin_call()
    yield LiveSite("tests.site", "branch", _code.__code__)
    log.forget([_code.__code__])


def test_dynamo_traces_again_and_is_told_what_comes_next(site: LiveSite) -> None:
    with pytest.raises(compat.RestartAnalysis) as caught:
        falsify(site.unmendable("copy", "why"), Finding(Claim.SHARED, site, 1))
    assert isinstance(caught.value, Falsified)
    assert [each.claim for each in caught.value.findings] == [Claim.MENDED, Claim.SHARED]
    assert caught.value.restart_reason == (
        "bcmend: tests.site: the site stays as it is; tests.site: it is kept apart"
    )
    assert (site.withdrawn, site.detail) == ("copy", "why")


def test_the_cause_goes_along(site: LiveSite) -> None:
    cause = ValueError()
    with pytest.raises(Falsified) as caught:
        falsify(site.unmendable("copy"), cause=cause)
    assert caught.value.__cause__ is cause


@pytest.mark.parametrize("is_strict", [False, True])
def test_a_trace_cannot_falsify_what_it_had_no_right_to_assume(
    site: LiveSite, monkeypatch: pytest.MonkeyPatch, is_strict: bool
) -> None:
    monkeypatch.setattr(strict, "IS_ON", is_strict)
    with pytest.raises(Falsified), log.tracing(_code.__code__):
        falsify(Finding(Claim.SHARED, site, 1))
    with (
        pytest.raises(strict.InternalError if is_strict else Endless),
        log.tracing(_code.__code__),
    ):
        falsify(Finding(Claim.SHARED, site, 1))


def test_a_trace_may_find_the_same_twice_for_dynamo_may_ask_on(site: LiveSite) -> None:
    with log.tracing(_code.__code__):
        for _ in range(2):
            with pytest.raises(Falsified):
                falsify(Finding(Claim.READ_APART, site, 0))


def test_what_another_thread_found_meanwhile_is_no_fault(site: LiveSite) -> None:
    with pytest.raises(Falsified), log.tracing(_code.__code__):
        weaken(Finding(Claim.SHARED, site, 1))
        falsify(Finding(Claim.SHARED, site, 1))


def test_the_log_has_what_a_trace_found_and_what_was_found_behind_it(site: LiveSite) -> None:
    with pytest.raises(Falsified), log.tracing(_code.__code__):
        falsify(Finding(Claim.SHARED, site, 1))
    weaken(Finding(Claim.NEW, site, 1))
    (trace,) = log.traces([_code.__code__])
    assert [each.claim for each in trace.findings] == [Claim.SHARED, Claim.NEW]
    assert trace.seconds > 0 and trace.reason
