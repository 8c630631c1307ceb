"""What comprehensions in the code of a function put aside for nobody is left out."""

from __future__ import annotations

import sys
from types import FunctionType

import pytest

from bcmend.analysis.facts import Facts, facts_of
from bcmend.bytecode.decode import decode
from bcmend.rewrite.passes.comprehensions import without_saved_variables
from bcmend.rewrite.sites.branch import propose_branch
from bcmend.rewrite.sites.plan import BranchLowering, SiteRefusal
from bcmend.rewrite.sites.widen import wider_forms
from tests.stand_ins import EverythingMended, installed, outcome_of

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 12), reason="comprehensions are functions of their own"
)


def _kept(values, limit):
    kept = [each * 2 for each in values if each > limit]
    if not kept:
        return limit
    return sum(kept) + len(kept)


def _keyed(values, limit):
    found = {each: 7 // each for each in values if each > limit}
    return found, {each for each in values if each < limit}


def _twice(values, limit):
    first = [each for each in values if each > limit]
    second = [each + 1 for each in values if each < limit]
    return first, second


def _nested(values, limit):
    return [[other for other in values if other > each] for each in values if each > limit]


def _caught(values, limit):
    try:
        found = [7 // each for each in values if each < limit]
    except ZeroDivisionError:
        return "caught"
    return len(found)


FOR_NOBODY = [_kept, _keyed, _twice, _nested, _caught]


def _read_behind(values, limit):
    each = limit
    found = [each for each in values if each > 1]
    return found, each


def _read_by_the_outer(values, limit):
    return [[each for each in values if each > limit] + [each] for each in values]


def _read_in_a_handler(values, limit):
    each = "before"
    try:
        return [7 // each for each in values if each < limit]
    except ZeroDivisionError:
        return each


def _used_by_functions(values, limit):
    functions = [lambda: each for each in values if each > limit]  # noqa: B023
    return [function() for function in functions]


def _maybe_bound(values, limit):
    if limit:
        each = limit
    found = [each for each in values if each]
    return found, each


def _shown(values, limit):
    found = [each for each in values if each > limit]
    return found, sorted(locals())


FOR_SOMEBODY = [
    *(_read_behind, _read_by_the_outer, _read_in_a_handler, _used_by_functions, _maybe_bound),
    _shown,
]
CALLS = [([1, 5, 3], 2), ([1, 0, 3], 2), ([], 0), ([4, 4], 9)]


def _facts(function: FunctionType) -> Facts:
    return facts_of(decode(function.__code__))


def _saves(facts: Facts) -> int:
    return sum(each.op == "LOAD_FAST_AND_CLEAR" for each in facts.instructions)


@pytest.mark.parametrize("function", FOR_NOBODY)
def test_nothing_is_put_aside_for_nobody(function: FunctionType) -> None:
    facts = _facts(function)
    assert _saves(facts) > 0
    assert _saves(without_saved_variables(facts)) == 0


@pytest.mark.parametrize("function", FOR_SOMEBODY)
def test_what_is_read_again_is_put_aside(function: FunctionType) -> None:
    assert _saves(without_saved_variables(_facts(function))) > 0


@pytest.mark.parametrize("function", FOR_SOMEBODY)
def test_dynamo_does_not_take_it_for_one_of_cpython(function: FunctionType) -> None:
    # It looks for a save, a SWAP and the BUILD_LIST, and copies what follows with the locals of
    # the comprehension alone: without those that are stored for a region in it.
    instructions = without_saved_variables(_facts(function)).instructions
    behind = [
        instructions[index + 1].op
        for index, each in enumerate(instructions)
        if each.op == "LOAD_FAST_AND_CLEAR"
    ]
    assert set(behind) == {"NOP"}


@pytest.mark.parametrize("function", [*FOR_NOBODY, *FOR_SOMEBODY])
def test_the_function_does_the_same(function: FunctionType) -> None:
    mended = installed(function, EverythingMended())
    for values, limit in CALLS:
        assert outcome_of(mended, values, limit) == outcome_of(function, values, limit)


def test_a_region_goes_on_behind_the_comprehension() -> None:
    def widest(facts: Facts) -> BranchLowering | SiteRefusal:
        *_, last = wider_forms(facts, facts.branches[0])
        return propose_branch(facts, last)

    facts = _facts(_kept)
    assert isinstance(widest(facts), SiteRefusal)
    assert isinstance(widest(without_saved_variables(facts)), BranchLowering)
