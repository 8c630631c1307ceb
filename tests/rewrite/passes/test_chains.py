"""Chains of conditions become one branch, and mean what they meant."""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType

import pytest

from bcmend.rewrite.sites.plan import BranchLowering, GuardLowering
from tests.stand_ins import (
    EverythingMended,
    NothingToMend,
    RefusedWhileTraced,
    installed,
    outcome_of,
    sites_of,
)


def _and(a, b, c):
    if a and b and c:
        return "all"
    return "not all"


def _or(a, b, c):
    if a or b or c:
        x = "any"
    else:
        x = "none"
    return x


def _mixed(a, b, c):
    return 1 if (a and b) or c else 2


def _negated(a, b, c):
    x = 0
    if not a and not b > c:
        x = 1
    return x, c


def _compared(a, b, c):
    if a > 0 and b > a and c != b:
        return "rising"
    return "other"


def _while(a, b, c):
    pairs = []
    while a < 4 and b < 4:
        a, b = a + 1, b + c + 1
        pairs.append((a, b))
    return pairs


def _checked(a, b, c):
    assert a and b, "neither"
    if b > 1 and c:
        raise ValueError(a, b)
    return c


def _binds_between(a, b, c):
    if a and (d := b + c) and d > 1:
        return d
    return a


def _within_try(a, b, c):
    try:
        if 4 // a and 4 // b:
            return "fine"
    except ZeroDivisionError:
        return "zero"
    return "small"


def _calls_between(a, b, c):
    seen = []

    def look(value):
        seen.append(value)
        return value

    if (look(a) and look(b)) or look(c):
        seen.append("yes")
    return seen


PROGRAMS = (
    _and,
    _or,
    _mixed,
    _negated,
    _compared,
    _while,
    _checked,
    _binds_between,
    _within_try,
    _calls_between,
)
CALLS = [(a, b, c) for a in (0, 1, 9) for b in (0, 2) for c in (0, 1)]


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("answers", [NothingToMend, EverythingMended, RefusedWhileTraced])
def test_a_chain_does_what_its_original_does(
    function: FunctionType, answers: type[NothingToMend]
) -> None:
    primitives = answers()
    mended = installed(function, primitives)
    for call in CALLS:
        assert repr(outcome_of(mended, *call)) == repr(outcome_of(function, *call))
    assert primitives.asked


def _arms(function: FunctionType) -> Iterator[int]:
    """Yield how many stretches of code the arms of each branch are made of."""
    for site in sites_of(function):
        if isinstance(site.decision, BranchLowering):
            yield len(site.decision.blocks)


def test_only_the_last_condition_has_the_arms() -> None:
    *conditions, last = _arms(_and)
    assert max(conditions) == 1 < last


def test_a_variable_bound_in_between_keeps_the_jumps_apart() -> None:
    first, *_ = _arms(_binds_between)
    assert first > 1


def test_a_check_of_two_conditions_is_one_guard() -> None:
    kinds = [type(site.decision) for site in sites_of(_checked)]
    assert kinds == [BranchLowering, GuardLowering] * 2
