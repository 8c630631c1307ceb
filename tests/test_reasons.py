"""The table of refusals is complete, well-formed and read-only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import bcmend
from bcmend.reasons import REASONS, reason

PACKAGE = Path(bcmend.__file__).parent
SOURCES = {path: path.read_text() for path in PACKAGE.rglob("*.py") if path.name != "reasons.py"}
GIVEN = re.compile(r'(?:Refusal|refuse|withdraw|withdraw_recent)\(\s*"([^"]+)"')


def test_every_slug_that_the_code_gives_is_in_the_table() -> None:
    given = {slug for text in SOURCES.values() for slug in GIVEN.findall(text)}
    assert given, "the pattern finds nothing"
    assert given <= REASONS.keys()


@pytest.mark.parametrize("slug", REASONS)
def test_every_slug_of_the_table_is_given_somewhere(slug: str) -> None:
    assert any(f'"{slug}"' in text for text in SOURCES.values())


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
