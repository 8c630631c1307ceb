"""What is proposed for a jump: inputs, outputs and cells of its arms, or why there is nothing."""

from __future__ import annotations

import sys
from types import FunctionType
from typing import Any

import pytest

from bcmend.analysis.facts import facts_of
from bcmend.bytecode.decode import decode
from bcmend.cfg.dominance import EXIT
from bcmend.rewrite.passes.common_form import in_common_form
from bcmend.rewrite.sites.branch import propose_between
from bcmend.rewrite.sites.plan import BranchLowering, GuardLowering
from bcmend.rewrite.sites.widen import joined_at
from tests.rewrite.programs import PROGRAMS
from tests.stand_ins import (
    EverythingMended,
    TakenBack,
    installed,
    outcome_of,
    refusals_of,
    sites_of,
)


def _the_same(value: object) -> object:
    """Make a return too long for the compiler to put a copy of it into each arm."""
    return value


def _decisions(function: FunctionType) -> list[Any]:
    return [site.decision for site in sites_of(function)]


def _instructions_of(function: FunctionType, lowering: BranchLowering) -> list[int]:
    return facts_of(in_common_form(function.__code__)).indices_of(lowering.blocks)


def _branch(function: FunctionType) -> BranchLowering:
    (decision,) = _decisions(function)
    assert isinstance(decision, BranchLowering)
    return decision


def _guard(function: FunctionType) -> GuardLowering:
    (decision,) = _decisions(function)
    assert isinstance(decision, GuardLowering)
    return decision


def test_what_is_read_comes_in_and_what_is_read_later_goes_out() -> None:
    def f(x, read, unread, passed):
        if x:
            passed = read
            temporary = unread
        else:
            temporary = passed
            passed = temporary
        return max(passed, x, key=_the_same)

    lowering = _branch(f)
    assert lowering.inputs == ("passed", "read", "unread")
    assert lowering.outputs == ("passed",)
    assert lowering.cells == () and not lowering.returns


def test_a_variable_that_one_arm_leaves_alone_comes_in() -> None:
    def f(x, y):
        if x:
            y = 1
        return y

    lowering = _branch(f)
    assert lowering.inputs == lowering.outputs == ("y",)


def test_a_variable_that_both_arms_bind_does_not_come_in() -> None:
    def f(x):
        if x:
            y = 1
        else:
            y = 2
        return max(y, x, key=_the_same)

    lowering = _branch(f)
    assert lowering.inputs == () and lowering.outputs == ("y",)


def test_arms_that_return() -> None:
    def f(x, y):
        if x:
            return y
        z = y + 1
        return z

    lowering = _branch(f)
    assert lowering.returns
    assert lowering.inputs == ("y",) and lowering.outputs == ()


def test_operands_that_the_arms_leave_on_the_stack() -> None:
    def f(x, y):
        z = [y, (y if x else 0)]
        return max(z, [x], key=_the_same)

    lowering = _branch(f)
    assert (lowering.base, lowering.operands, lowering.extra) == (1, 0, 1)
    assert lowering.outputs == ()


def test_variables_that_a_nested_function_captures_are_cells() -> None:
    def f(x, y):
        if x:
            y = y + 1
        else:
            x = y
        return (lambda: y), x

    lowering = _branch(f)
    assert lowering.cells == ("y",)
    assert lowering.inputs == lowering.outputs == ("x",)


def test_super_without_arguments_brings_the_first_argument() -> None:
    class Some:
        def method(self, x, y):
            if x:
                y = super().__init__()
            return y

    lowering = _branch(Some.method)
    assert lowering.first == ("self",) and "__class__" in lowering.cells


def test_the_arm_where_the_condition_is_true_comes_first() -> None:
    def f(x):
        if x:
            y = 1
        else:
            y = 2
        return y

    def g(x):
        if not x:
            y = 2
        else:
            y = 1
        return y

    for function in (f, g):
        mended = installed(function, EverythingMended())
        assert mended(True) == 1 and mended(False) == 2


def test_a_guard_raises_on_the_side_that_the_source_says() -> None:
    def f(x, y):
        if x:
            raise ValueError(y)
        return y

    asserting = PROGRAMS["asserts"].function
    assert _guard(f).raises_if is True and _guard(asserting).raises_if is False
    assert _guard(f).inputs == _guard(asserting).inputs == ("y",)


def test_a_guard_is_given_the_operand_that_it_drops() -> None:
    def f(x, y):
        if not 0 < x < y:
            raise ValueError(y)
        return y

    first, second = (each for each in _decisions(f) if isinstance(each, GuardLowering))
    assert (first.operands, second.operands) == (1, 0)
    mended = installed(f, EverythingMended())
    for arguments in ((1, 2), (0, 2), (2, 1)):
        assert outcome_of(mended, *arguments) == outcome_of(f, *arguments)


def test_an_operand_that_an_arm_takes_from_under_the_condition_is_given() -> None:
    def f(x, y):
        z = [0 < x < y]
        return max(z, [x], key=_the_same)

    lowering = _branch(f)
    assert lowering.operands >= 1 and lowering.extra == 1  # Python 3.12 copies the condition too
    mended = installed(f, EverythingMended())
    for arguments in ((1, 2), (1, 1), (0, 2)):
        assert mended(*arguments) == f(*arguments)


def test_a_condition_that_is_the_value_of_its_arm_is_kept() -> None:
    def either(x, y):
        return [x or y]

    def both(x, y):
        return [x and y]

    for function in (either, both):
        mended = installed(function, EverythingMended())
        for arguments in ((0, 0.0), (0, 2), (3, 0), (3, 2)):
            assert mended(*arguments) == function(*arguments)
        if sys.version_info < (3, 12):  # later ones copy the condition and pop the copy
            assert _branch(function).retained_if is (function is either)


def test_branches_that_meet_at_one_join_share_a_region() -> None:
    def f(x, y):
        if x > 2:
            return y
        if x > 1:
            return -y
        return 0

    first, second = _decisions(f)
    assert first.region == second.region and first.returns
    assert second.blocks < first.blocks
    mended = installed(f, EverythingMended())
    assert [mended(x, 5) for x in (3, 2, 1)] == [5, -5, 0]


def test_an_arm_that_goes_round_its_loop_comes_back_to_its_own_jump() -> None:
    def f(x, y):
        while x < y:
            x = x * 2
        return max(x, y, key=_the_same)

    before, inside = sites_of(f)
    assert before.place == inside.place is not None
    assert inside.decision.jump in _instructions_of(f, inside.decision)
    mended = installed(f, EverythingMended())
    assert [mended(1, 9), mended(9, 1)] == [16, 9]


def test_the_iterator_of_a_loop_is_given_to_a_branch_that_leaves_it() -> None:
    def f(x, y):
        for each in y:
            if each > x:
                break
            x += 1
        return x

    (lowering,) = [each for each in _decisions(f) if isinstance(each, BranchLowering)]
    assert (lowering.base, lowering.operands) == (0, 1)
    mended = installed(f, EverythingMended())
    assert [mended(0, [0, 1, 9]), mended(0, [5]), mended(0, [])] == [2, 0, 0]


# --- refusals ------------------------------------------------------------------------------------


def _uses_locals(x):
    if x:
        y = locals()
    else:
        y = {}
    return y


def _returns_in_handler(x, y):
    try:
        y = y[0]
    except TypeError:
        if x:
            return 1
        return 2
    return y


def _handles_its_own_exception(x, y):
    while x:
        if y:
            try:
                raise ValueError
            finally:
                break  # noqa: B012
    return x


def _goes_on_after_its_own_exception(x, y):
    while y:
        y -= 1
        if x:
            try:
                raise ValueError
            except ValueError:
                continue
    return x


@pytest.mark.parametrize(
    ("function", "slug"),
    [
        (_uses_locals, "frame-introspection"),
        (_returns_in_handler, "return-in-try"),
        (_handles_its_own_exception, "return-in-try"),
        (_goes_on_after_its_own_exception, "return-in-try"),
    ],
)
def test_a_refusal(function: FunctionType, slug: str) -> None:
    assert slug in refusals_of(function)


# --- found by random programs --------------------------------------------------------------------


def test_a_dictionary_comprehension_keeps_its_dictionary() -> None:
    """The dictionary lies under two operands more than the argument of MAP_ADD says."""

    def f(y):
        return {each: -each for each in y if each}

    mended = installed(f, EverythingMended())
    assert mended([0, 1, 2]) == {1: -1, 2: -2}


def test_an_arm_that_handles_its_own_exception_is_no_guard() -> None:
    def f(x, y, z):
        while x:
            if y:
                try:
                    raise ValueError
                finally:
                    break  # noqa: B012
            x -= 1
        return x, y, z

    mended = installed(f, EverythingMended())
    assert mended(3, 1, 2) == (3, 1, 2) and mended(3, 0, 2) == (0, 0, 2)


def test_a_variable_that_a_handler_reads_goes_through_inner_arms() -> None:
    def f(x, y, z):
        try:
            t = z
            if x:
                if y:
                    t = 1
                z = 1 // y
        except ZeroDivisionError:
            z = t
        return z

    for arguments in [(0, 0, 7), (0, 1, 7), (1, 0, 7), (1, 1, 7)]:
        mended = installed(f, TakenBack([]))
        assert outcome_of(mended, *arguments).value == f(*arguments)


def test_variables_bound_in_a_with_block_need_no_value_before() -> None:
    def f(x, y):
        with y:
            if x:
                z = 1
            else:
                z = 2
        return z

    decisions = _decisions(f)
    lowered = [each for each in decisions if isinstance(each, BranchLowering)]
    assert [each.inputs for each in lowered if "z" in each.outputs] == [()]


def _inside_a_try(x: Any) -> Any:
    try:
        if x:
            x = -x
        x = x + 1
    except ValueError:
        return None
    return x


def test_handlers_around_the_branch_and_its_join_stay_outside() -> None:
    facts = facts_of(decode(_inside_a_try.__code__))
    branch = facts.branches[0]
    around = facts.all_handlers_over(branch.jump)
    found = propose_between(facts, branch)
    assert around and isinstance(found, BranchLowering)
    assert found.outer == around and found.join == branch.join


def test_handlers_become_part_of_arms_that_go_on_to_the_return() -> None:
    facts = facts_of(decode(_inside_a_try.__code__))
    branch = joined_at(facts, facts.branches[0], EXIT)
    found = propose_between(facts, branch)
    assert isinstance(found, BranchLowering) and found.outer == frozenset()
    handlers = {facts.graph.handler_block(facts.graph.block_of[branch.jump + 1])}
    assert handlers <= found.blocks
