"""The table of refusals is complete, well-formed and read-only."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import bcmend
from bcmend.reasons import REASONS
from bcmend.tracing.sites import live_state

PACKAGE = Path(bcmend.__file__).parent
SOURCES = {path: path.read_text() for path in PACKAGE.rglob("*.py") if path.name != "reasons.py"}

#: What is given a slug first: the exception or record itself, and the methods of a site.
TAKES_A_SLUG = frozenset(["Refusal", "HandlerRefusal", "refuse", "unmendable", "withdraw_recent"])


def _given(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions that are given as slugs."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in TAKES_A_SLUG:
            yield from node.args[:1]
            yield from (each.value for each in node.keywords if each.arg == "slug")


def _slugs(given: ast.expr, tree: ast.AST) -> Iterator[str]:
    """Yield the slugs that an expression may stand for, as far as they are written there."""
    if isinstance(given, ast.Constant):
        yield str(given.value)
    elif isinstance(given, ast.Starred):  # a pair that this or another function of the file made
        yield from _slugs_of_pairs(given)
    elif isinstance(given, ast.IfExp):
        yield from _slugs(given.body, tree)
        yield from _slugs(given.orelse, tree)
    elif isinstance(given, ast.Name) and given.id not in ("slug", "site"):
        raise AssertionError(f"line {given.lineno}: {given.id} may be any slug")


def _slugs_of_pairs(tree: ast.AST) -> Iterator[str]:
    """Yield what has the form of a slug at the beginning of a pair: slug and detail."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Tuple) and len(node.elts) == 2:
            first = node.elts[0]
            if isinstance(first, ast.Constant) and SLUG.fullmatch(str(first.value)):
                yield str(first.value)


SLUG = re.compile(r"[a-z]+(-[a-z]+)+")


@functools.cache
def _trees() -> dict[Path, ast.AST]:
    return {path.relative_to(PACKAGE): ast.parse(text) for path, text in SOURCES.items()}


def test_every_slug_that_the_code_gives_is_in_the_table() -> None:
    unknown = {
        (str(path), slug)
        for path, tree in _trees().items()
        for each in _given(tree)
        for slug in _slugs(each, tree)
        if slug not in REASONS
    }
    assert not unknown


def test_every_pair_of_slug_and_detail_is_in_the_table() -> None:
    given = {slug for tree in _trees().values() for slug in _slugs_of_pairs(tree)}
    assert {"arm-hook", "arm-untraceable"} <= given <= REASONS.keys()


def test_slugs_are_found_in_all_forms_in_which_they_are_given() -> None:
    tree = ast.parse(
        "Refusal('one', d); site.refuse(slug='two'); a.b.unmendable('three' if x else 'four');"
        " site.refuse(*(found or ('five-six', d))); site.refuse(other.slug, d); print('seven')"
    )
    found = [slug for each in _given(tree) for slug in _slugs(each, tree)]
    assert found == ["one", "two", "three", "four", "five-six"]
    with pytest.raises(AssertionError, match="any slug"):
        unknown = ast.parse("Refusal(name)")
        list(_slugs(next(_given(unknown)), unknown))


def test_reasons_that_decide_what_is_tried_next_are_in_the_table() -> None:
    assert live_state.WIDENED | live_state.LEFT_OUT_NOW <= REASONS.keys()


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
        assert row.meaning.count(". ") < 4, "the meaning is four sentences at most"


def test_no_two_reasons_say_the_same() -> None:
    assert len({row.meaning for row in REASONS.values()}) == len(REASONS)
    assert len({row.hint for row in REASONS.values()}) == len(REASONS)


def test_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        REASONS["generator"] = REASONS["coroutine"]  # type: ignore[index]
