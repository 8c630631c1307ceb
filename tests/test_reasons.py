"""The table of refusals is complete, well-formed and read-only."""

from __future__ import annotations

import re

import pytest

from bcmend.reasons import REASONS, reason

EXPECTED = """
    switched-off policy-keep generator coroutine unknown-opcode frame-introspection maybe-unbound
    return-in-try yield-in-region consumes-iterator cell-store deletes-local arms-differ arm-effects
    arm-untraceable random-under-gradients multi-element-condition not-captured handler-in-caller
    output-result-used stack-shape too-large
"""


@pytest.mark.parametrize("slug", EXPECTED.split())
def test_every_refusal_of_the_design_has_a_reason(slug: str) -> None:
    assert reason(slug).slug == slug


def test_each_reason_says_what_and_what_to_do() -> None:
    for slug, row in REASONS.items():
        assert row.slug == slug
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", slug)
        for text in (row.meaning, row.hint):
            assert text.endswith(".")
            assert text[0].isupper()
        assert ". " not in row.meaning, "the meaning is one sentence"


def test_no_two_reasons_say_the_same() -> None:
    assert len({row.meaning for row in REASONS.values()}) == len(REASONS)
    assert len({row.hint for row in REASONS.values()}) == len(REASONS)


def test_unknown_slug_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="no-such-reason"):
        reason("no-such-reason")


def test_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        REASONS["generator"] = reason("coroutine")  # type: ignore[index]
