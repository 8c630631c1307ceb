"""All patterns of the corpus."""

from __future__ import annotations

from types import ModuleType
from typing import Final

from corpus.patterns import (
    arms,
    branches,
    checks,
    dynamic,
    effects,
    host_calls,
    loops,
    order_of_records,
    output,
    randomness,
    scopes,
)
from corpus.patterns.pattern import Pattern

TOPICS: Final[tuple[ModuleType, ...]] = (
    order_of_records,
    *checks.TOPICS,
    *output.TOPICS,
    host_calls,
    *effects.TOPICS,
    randomness,
    *scopes.TOPICS,
    *loops.TOPICS,
    *dynamic.TOPICS,
    *arms.TOPICS,
    *branches.TOPICS,
)
"""The modules that hold patterns, in the order in which a new pattern is tried on them."""

PATTERNS: Final[tuple[Pattern, ...]] = tuple(each for topic in TOPICS for each in topic.PATTERNS)
"""Every pattern, by topic and in the order of each module."""


def topic_of(pattern: Pattern) -> str:
    """Return the name of the topic of a pattern, such as "checks.order"."""
    return _name(pattern.make.__module__)


def topics() -> dict[str, str]:
    """Return what belongs to each topic, by its name: the first line of its module."""
    return {_name(each.__name__): _summary(each) for each in TOPICS}


def _name(module: str) -> str:
    return module.removeprefix("corpus.patterns.")


def _summary(topic: ModuleType) -> str:
    return (topic.__doc__ or "").splitlines()[0].removesuffix(".")


def pattern_named(name: str) -> Pattern:
    """Return the pattern called `name`.

    Raises:
        KeyError: no pattern is called that.
    """
    return {each.name: each for each in PATTERNS}[name]
