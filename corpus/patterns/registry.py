"""All patterns of the corpus."""

from __future__ import annotations

from typing import Final

from corpus.patterns import (
    arguments,
    blocks,
    branches,
    caches,
    checks,
    checks_and_state,
    conditions,
    containers,
    continuations,
    draws,
    dynamic_shapes,
    effects,
    errors,
    exits,
    expert_loops,
    guards,
    hard,
    host_calls,
    in_place,
    iteration,
    logs,
    loops,
    masked_stores,
    messages,
    modules,
    operands,
    output,
    production,
    scopes,
    searches,
    sinks,
    speculation,
    state,
    substitutes,
    timing,
    truths,
    unbound,
)
from corpus.patterns.pattern import Pattern

PATTERNS: Final[tuple[Pattern, ...]] = (
    *branches.PATTERNS,
    *truths.PATTERNS,
    *dynamic_shapes.PATTERNS,
    *masked_stores.PATTERNS,
    *loops.PATTERNS,
    *expert_loops.PATTERNS,
    *effects.PATTERNS,
    *containers.PATTERNS,
    *in_place.PATTERNS,
    *guards.PATTERNS,
    *checks.PATTERNS,
    *checks_and_state.PATTERNS,
    *output.PATTERNS,
    *messages.PATTERNS,
    *errors.PATTERNS,
    *sinks.PATTERNS,
    *logs.PATTERNS,
    *arguments.PATTERNS,
    *production.PATTERNS,
    *modules.PATTERNS,
    *draws.PATTERNS,
    *hard.PATTERNS,
    *conditions.PATTERNS,
    *operands.PATTERNS,
    *exits.PATTERNS,
    *blocks.PATTERNS,
    *continuations.PATTERNS,
    *iteration.PATTERNS,
    *searches.PATTERNS,
    *scopes.PATTERNS,
    *state.PATTERNS,
    *speculation.PATTERNS,
    *unbound.PATTERNS,
    *timing.PATTERNS,
    *substitutes.PATTERNS,
    *host_calls.PATTERNS,
    *caches.PATTERNS,
)
"""Every pattern, by file and in the order of each file."""


def pattern_named(name: str) -> Pattern:
    """Return the pattern called `name`.

    Raises:
        KeyError: no pattern is called that.
    """
    return {each.name: each for each in PATTERNS}[name]
