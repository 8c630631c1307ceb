"""Whether the records of a trace run inside the graph or after it."""

from __future__ import annotations

from types import CodeType, SimpleNamespace
from typing import Any

import pytest

from bcmend.policy import Policy
from bcmend.tracing.deopt import record_timing
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.search.falsified import Falsified, weaken
from bcmend.tracing.sites.site_table import LiveSite


def _code() -> CodeType:
    """Return code that nothing is known of."""
    return compile("0", "<frame>", "eval").replace(co_name="frame")


@pytest.fixture
def code() -> CodeType:
    return _code()


def _tracer(code: CodeType) -> Any:
    """Return a new trace of ``code``."""
    return SimpleNamespace(output=SimpleNamespace(root_tx=SimpleNamespace(f_code=code)))


def _site(**policy: Any) -> LiveSite:
    return LiveSite("module.f:1", "output", _code.__code__, Policy(**policy))


INLINE, DEFERRED = _site(output="inline"), _site()


def test_checks_and_output_have_policies_of_their_own() -> None:
    assert record_timing.is_asked_for(INLINE, raises=False)
    assert not record_timing.is_asked_for(INLINE, raises=True)
    assert record_timing.is_asked_for(_site(guards="inline"), raises=True)


def test_the_policy_decides_where_nothing_else_has(code: CodeType) -> None:
    tx = _tracer(code)
    assert record_timing.is_wanted(tx, INLINE, raises=False)
    assert not record_timing.is_wanted(tx, DEFERRED, raises=False)


def test_a_record_inside_the_graph_takes_the_others_along(code: CodeType) -> None:
    tx = _tracer(code)
    record_timing.of(tx.output).has_inline = True
    assert record_timing.is_wanted(tx, DEFERRED, raises=False)
    assert not record_timing.is_wanted(_tracer(code), DEFERRED, raises=False)


def test_a_frame_whose_records_cannot_run_inside_defers_all_later_ones(code: CodeType) -> None:
    with pytest.raises(Falsified):
        record_timing.must_wait(_tracer(code).output)
    tx = _tracer(code)
    record_timing.of(tx.output).has_inline = True
    assert not record_timing.is_wanted(tx, INLINE, raises=False)


def test_side_exits_are_possible_again_when_nothing_is_written_inside(code: CodeType) -> None:
    weaken(Finding(Claim.THROWN_AWAY, DEFERRED))
    assert not DEFERRED.holds(Claim.THROWN_AWAY)
    with pytest.raises(Falsified):
        record_timing.must_wait(_tracer(code).output)
    assert DEFERRED.holds(Claim.THROWN_AWAY)


def test_a_deferred_record_before_an_inline_one_has_all_run_inside(code: CodeType) -> None:
    tx = _tracer(code)
    record_timing.require_none_deferred(tx)  # there is none yet
    record_timing.of(tx.output).has_deferred = True
    with pytest.raises(Falsified):
        record_timing.require_none_deferred(tx)
    assert record_timing.is_wanted(_tracer(code), DEFERRED, raises=False)
