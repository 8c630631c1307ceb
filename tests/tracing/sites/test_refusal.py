"""Refusals, and the one call that turns them into values."""

from __future__ import annotations

import pytest

from bcmend.tracing.sites.refusal import NotThisWay, Refusal, attempt


def test_the_text_of_a_refusal_is_its_detail_or_else_its_slug() -> None:
    assert str(Refusal("copy", "of a list")) == "of a list"
    assert str(Refusal("copy")) == "copy"


def test_a_way_that_is_refused_has_no_reason_of_the_site() -> None:
    outcome = attempt(lambda: _raise(NotThisWay()))
    assert isinstance(outcome, NotThisWay)
    assert (outcome.slug, str(outcome)) == ("", "not in this way")
    assert str(NotThisWay("two ranges")) == "two ranges"


def _raise(error: Exception) -> int:
    raise error


def test_an_attempt_returns_what_was_made() -> None:
    assert attempt(lambda: 3) == 3


def test_an_attempt_returns_a_refusal_without_the_frames_of_the_attempt() -> None:
    def refuse() -> int:
        raise Refusal("copy", "of a list")

    outcome = attempt(refuse)
    assert isinstance(outcome, Refusal)
    assert (outcome.slug, outcome.detail) == ("copy", "of a list")
    assert outcome.__traceback__ is None


def test_an_attempt_lets_other_errors_pass() -> None:
    with pytest.raises(ZeroDivisionError):
        attempt(lambda: 1 // 0)
