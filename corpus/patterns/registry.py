"""All patterns of the corpus."""

from __future__ import annotations

from typing import Final

from corpus.patterns import (
    branches,
    conditions,
    continuations,
    effects,
    exits,
    guards,
    hard,
    iteration,
    loops,
    modules,
    operands,
    output,
    scopes,
    searches,
    speculation,
    state,
)
from corpus.patterns.pattern import Pattern

PATTERNS: Final[tuple[Pattern, ...]] = (
    *branches.PATTERNS,
    *loops.PATTERNS,
    *effects.PATTERNS,
    *guards.PATTERNS,
    *output.PATTERNS,
    *modules.PATTERNS,
    *hard.PATTERNS,
    *conditions.PATTERNS,
    *operands.PATTERNS,
    *exits.PATTERNS,
    *continuations.PATTERNS,
    *iteration.PATTERNS,
    *searches.PATTERNS,
    *scopes.PATTERNS,
    *state.PATTERNS,
    *speculation.PATTERNS,
)
"""Every pattern, by file and in the order of each file."""


def pattern_named(name: str) -> Pattern:
    """Return the pattern called `name`.

    Raises:
        KeyError: no pattern is called that.
    """
    return {each.name: each for each in PATTERNS}[name]
