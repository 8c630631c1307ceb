"""Jumps on lists that one side of a branch grows are found, and no other jumps on lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bcmend.analysis.facts import facts_of
from bcmend.analysis.grown_lists import asks_about, grown_lists
from bcmend.bytecode.decode import decode


def _found(function: Callable[..., Any]) -> tuple[frozenset[str], list[int]]:
    """Return the lists grown by sides of the first branch, and the lines that ask about them."""
    facts = facts_of(decode(function.__code__))
    grown = grown_lists(facts, facts.branches[:1])
    lines = [
        facts.instructions[each.jump].location.lineno - function.__code__.co_firstlineno
        for each in facts.branches
        if asks_about(facts, each.jump, grown)
    ]
    return grown, lines


def _on_one_side(x, other):
    found, both, given = [], [], other
    if x > 0:
        found.append(x)
        both.append(1)
        given.append(1)
    else:
        both.append(2)
    if found:
        x = 1
    if not found:
        x = 2
    if len(found) > 1:
        x = 3
    if given:
        x = 4
    if found is None or x:
        x = 5
    return x


def _left_early(xs):
    found = []
    for x in xs:
        if x > 0:
            break
        found.append(x)
    return found if found else xs


def _on_both_sides(x):
    found = []
    if x > 0:
        y = 1
    else:
        y = 2
    found.append(y)
    return 1 if found else 2


def test_a_list_that_one_side_grows_is_found() -> None:
    grown, lines = _found(_on_one_side)
    assert "found" in grown and "given" not in grown
    assert lines == [8, 10, 12]


def test_a_list_of_a_loop_that_is_left_early_is_found() -> None:
    assert _found(_left_early) == (frozenset(["found"]), [6])


@pytest.mark.parametrize("function", [_on_both_sides])
def test_a_list_that_grows_whatever_is_decided_is_not(function: Callable[..., Any]) -> None:
    assert _found(function) == (frozenset(), [])
