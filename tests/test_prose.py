"""No sentence of the documentation is longer than forty words, and some pages are shorter still.

What stands in a cell of a table, in an item of a list and in a paragraph is a text of its own. Code
counts as one word; the target of a link as none. Blocks of code and comments are no sentences.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LONGEST = 40
#: Pages whose sentences have so many words on the average, and no more.
ON_AVERAGE = 15
SHORT_ON_AVERAGE = "deviations figures interface limits refusals search substitutes".split()
_NAMED = 3  # words that a name in a cell or in a heading has, which is no sentence
_LEFT_OUT = re.compile(r"^( *)```.*?^ *```$|<!--.*?-->", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+).+?\1", re.DOTALL)
_TARGET = re.compile(r"\]\([^)]*\)")
_ITEM = re.compile(r"^([-*+]|\d{1,2}\.) +")
_END = re.compile(r"(?<=[.!?])[\"')*]*\s+")
_ENDED = re.compile(r"[.!?][\"')*]*$")


def texts_of(page: str) -> Iterator[str]:
    """Yield the headings, paragraphs, items and cells of a page in Markdown, without its code."""
    page = _TARGET.sub("]", _CODE.sub("CODE", _LEFT_OUT.sub("\n", page)))
    text = ""
    for line in map(str.strip, page.splitlines()):
        is_row, is_heading = line.startswith("|"), line.startswith("#")
        if text and (not line or is_row or is_heading or _ITEM.match(line)):
            yield text
            text = ""
        if is_row:
            yield from (each.strip() for each in line.strip("|").split("|"))
        elif is_heading:
            yield line.lstrip("# ")
        elif line:
            text = f"{text} {_ITEM.sub('', line, count=1) if not text else line}".strip()
    if text:
        yield text


def sentences_of(page: str) -> list[tuple[int, str]]:
    """Return the sentences of a page, each behind the number of its words."""
    sentences = (each for text in texts_of(page) for each in _END.split(text))
    return [(len(each.split()), each) for each in sentences]


def too_long(page: str) -> list[str]:
    """Return the sentences of a page that have too many words, each with their number."""
    return [f"{number}: {each}" for number, each in sentences_of(page) if number > LONGEST]


def average(page: str) -> float:
    """Return how many words a sentence of a page has on the average.

    It is the larger of two: that of what ends as a sentence does, which headings and cells do not
    make smaller, and that of all but names, so that a long text without an end counts as well.
    """
    counted = [(number, _ENDED.search(text) is not None) for number, text in sentences_of(page)]
    ended = [number for number, is_ended in counted if is_ended]
    unnamed = [number for number, is_ended in counted if is_ended or number > _NAMED]
    return max((sum(each) / len(each) for each in (ended, unnamed) if each), default=0)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_sentence_is_too_long(page: Path) -> None:
    assert too_long(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("name", SHORT_ON_AVERAGE)
def test_sentences_are_short_on_the_average(name: str) -> None:
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    longest = sorted((each for each in sentences_of(page) if each[0] > ON_AVERAGE), reverse=True)
    assert average(page) <= ON_AVERAGE, longest[:20]


@pytest.mark.parametrize(
    "page, expected",
    [
        ("# A heading of five words\n\nOne. One two three.\n", 3),
        ("# One\n\n| a | b |\n|---|---|\n| one | One two three four. |\n", 4),
        ("- one two three four five\n- One.\n\nOne (two. Three.)\n\nOne:\n", 2.25),
        ("| a |\n|---|\n| one two |\n| one two three four |\n", 4),
        ("", 0),
    ],
)
def test_an_average_is_that_of_sentences(page: str, expected: float) -> None:
    assert average(page) == expected


LONG = " ".join(["word"] * (LONGEST + 1))
FORMS = {
    "a paragraph": f"Short.\n\n{LONG}.\n",
    "lines": f"Short. {LONG.replace(' ', chr(10), 20)}\nShort.\n",
    "an item": f"- Short.\n- {LONG}\n",
    "a numbered item": f"1. Short.\n2. {LONG}\n   more\n",
    "a cell": f"| a | b |\n|---|---|\n| short | {LONG} |\n",
    "the end": f"Short! {LONG}",
    "a quotation": f'He says "word." {LONG}',
}


@pytest.mark.parametrize("page", FORMS.values(), ids=FORMS)
def test_a_sentence_that_is_too_long_is_found(page: str) -> None:
    (found,) = too_long(page)
    assert int(found.partition(":")[0]) > LONGEST


SHORT = {
    "forty words": " ".join(["word"] * LONGEST) + ".\n",
    "code": f"It is `{LONG}` and\n\n```text\n{LONG}\n```\n",
    "a link": f"It is [there](https://x.org/{LONG}).\n",
    "a comment": f"It <!-- {LONG} --> is.\n",
    "cells": "| a | b |\n|---|---|\n" + f"| {LONG[:110]} | {LONG[:110]} |\n",
    "a table of code": f"| `a | b {LONG}` | b |\n",
    "sentences": f"{LONG[:110]}. {LONG[:110]}? {LONG[:110]}.\n",
    "a number at the end": f"It takes 310. {LONG[:110]} - {LONG[:80]}.\n",
    "paragraphs": f"{LONG[:110]}\n\n{LONG[:110]}\n",
}


@pytest.mark.parametrize("page", SHORT.values(), ids=SHORT)
def test_other_text_is_not(page: str) -> None:
    assert too_long(page) == []
