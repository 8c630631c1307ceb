"""Every pattern is in the module of one topic, and every topic is documented."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import corpus.patterns
from corpus.patterns.__main__ import page
from corpus.patterns.pattern import Pattern
from corpus.patterns.registry import PATTERNS, TOPICS, topic_of, topics

FOLDER = Path(corpus.patterns.__file__).parent

#: Modules that hold no patterns.
OTHERS = {"__main__", "pattern", "registry", "shared_exceptions", "output.shown_objects"}


def _modules() -> dict[str, Path]:
    files = [each for each in FOLDER.rglob("*.py") if each.name != "__init__.py"]
    return {".".join(each.relative_to(FOLDER).with_suffix("").parts): each for each in files}


def test_every_module_is_a_topic_or_holds_no_pattern() -> None:
    assert _modules().keys() == topics().keys() | OTHERS
    assert len(TOPICS) == len(topics())


@pytest.mark.parametrize("topic", TOPICS, ids=lambda each: each.__name__.split(".", 2)[2])
def test_a_topic_lists_the_patterns_that_are_written_in_it(topic: object) -> None:
    held = [each for each in vars(topic).values() if isinstance(each, Pattern)]
    assert held
    assert list(topic.PATTERNS) == held  # type: ignore[attr-defined]
    assert {each.make.__module__ for each in held} == {topic.__name__}  # type: ignore[attr-defined]


def test_every_pattern_is_in_one_topic() -> None:
    in_topics = Counter(each.name for topic in TOPICS for each in topic.PATTERNS)
    assert in_topics == Counter(each.name for each in PATTERNS)
    assert set(in_topics.values()) == {1}
    assert {topic_of(each) for each in PATTERNS} == set(topics())


def test_every_topic_is_documented() -> None:
    rows = [line.split(maxsplit=1) for line in _table(corpus.patterns.__doc__ or "")]
    assert rows == [[name, what] for name, what in topics().items()]
    printed = page().splitlines()
    for name, what in topics().items():
        assert any(line.startswith(f"| {name} | {what} | ") for line in printed)


def _table(text: str) -> list[str]:
    """Return the rows of the table in a docstring."""
    lines = text.splitlines()
    _, head, end = (number for number, line in enumerate(lines) if line.startswith("==="))
    return lines[head + 1 : end]


@pytest.mark.parametrize("name", _modules())
def test_no_module_is_long(name: str) -> None:
    assert len(_modules()[name].read_text(encoding="utf-8").splitlines()) <= 450
