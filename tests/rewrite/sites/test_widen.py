"""Where the wider forms of a branch meet, and what they are good for."""

from __future__ import annotations

import dis
from types import FunctionType

from bcmend.analysis.facts import Facts, facts_of
from bcmend.bytecode.decode import decode
from bcmend.cfg.dominance import EXIT
from bcmend.cfg.regions import Branch
from bcmend.names import NAMESPACE
from bcmend.policy import DEFAULT
from bcmend.rewrite.mended import Context
from bcmend.rewrite.pipeline import mend
from bcmend.rewrite.sites.plan import BranchLowering
from bcmend.rewrite.sites.widen import joined_at, over_flags, wider_forms
from tests.stand_ins import EverythingMended, installed


def _first(function: FunctionType) -> tuple[Facts, Branch]:
    facts = facts_of(decode(function.__code__))
    return facts, facts.branches[0]


def _keep(value: object) -> object:
    return value


def _flag(x, y):
    drop = False
    if x:
        drop = True
    if drop:
        y = -y
    _keep(y)
    return y


def _two_flags(x, y):
    if x:
        one = False
        one = True
    else:
        one = None
    if not one:
        y = -y
    if one:
        y = y + 1
    _keep(y)
    return y


def _flag_untested(x, y):
    drop = False
    if x:
        drop = True
    _keep(y)
    return y, drop


def _same_constant(x, y):
    if x:
        drop, y = True, 1
        drop = True
    else:
        drop = True
    if drop:
        y = -y
    return y


def test_a_flag_set_in_an_arm_and_tested_at_the_join_goes_with_the_arms() -> None:
    facts, branch = _first(_flag)
    wide = over_flags(facts, branch)
    assert wide.join not in (branch.join, EXIT)
    assert branch.join in wide.taken_blocks & wide.fallthrough_blocks
    mended = installed(_flag, EverythingMended())
    assert [mended(True, 5), mended(False, 5)] == [-5, 5]


def test_all_tests_of_a_flag_in_a_row_go_with_the_arms() -> None:
    facts, branch = _first(_two_flags)
    wide = over_flags(facts, branch)
    tests = [each for each in facts.branches if each.jump != branch.jump]
    assert len(tests) == 2
    assert all(facts.graph.block_of[each.jump] in wide.taken_blocks for each in tests)
    mended = installed(_two_flags, EverythingMended())
    assert [mended(True, 5), mended(False, 5)] == [6, -5]


def test_a_branch_stays_as_it_is_where_no_flag_of_it_is_tested() -> None:
    for function in (_flag_untested, _same_constant):
        facts, branch = _first(function)
        assert over_flags(facts, branch) is branch


def test_a_wider_form_goes_to_the_next_turn_and_the_widest_to_the_return() -> None:
    def f(x, y):
        for each in y:
            if each > x:
                x = None
            else:
                x = each
            _keep(x)
        return x

    facts = facts_of(decode(f.__code__))
    branch = next(each for each in facts.branches if each.join != EXIT)
    iteration, rest = wider_forms(facts, branch)
    header = facts.graph.blocks[iteration.join]
    assert "FOR_ITER" in [facts.instructions[index].op for index in range(header.start, header.end)]
    assert rest.join == EXIT
    assert iteration.taken_blocks < rest.taken_blocks


def test_outside_loops_the_only_wider_form_goes_to_the_return() -> None:
    facts, branch = _first(_flag_untested)
    (form,) = wider_forms(facts, branch)
    assert form.join == EXIT


def test_a_branch_that_goes_to_the_return_has_no_wider_form() -> None:
    def f(x, y):
        if x:
            return y
        return -y

    assert list(wider_forms(*_first(f))) == []


class _NarrowTurnedDown(EverythingMended):
    """Mends no branch in its first form."""

    def branch(self, key, form, *rest):  # type: ignore[no-untyped-def, override]
        return super().branch(key, form, *rest) if form else None


def _installed_wide(function: FunctionType) -> tuple[FunctionType, list[BranchLowering]]:
    jumps = frozenset((id(function.__code__), i.offset) for i in dis.get_instructions(function))
    found = mend(function.__code__, Context("module", {}, DEFAULT, asked=jumps, wide=jumps))
    decisions = [site.decision for _, site in found.sites]
    names = {**function.__globals__, NAMESPACE: _NarrowTurnedDown()}
    body = FunctionType(found.body, names)
    return body, [each for each in decisions if isinstance(each, BranchLowering)]


def test_each_form_does_what_the_function_does() -> None:
    def f(x, y):
        total = []
        for each in y:
            if each > x:
                z = None
            else:
                z = each
            if z is not None:
                total.append(z)
        return total

    body, (lowering, *_) = _installed_wide(f)
    joins = [each.join for each in lowering.alternatives]
    assert len(set(joins)) == len(joins) >= 2 and joins[-1] == EXIT
    assert body(2, [1, 2, 3, 0], [], ()) == f(2, [1, 2, 3, 0]) == [1, 2, 0]


def _with_code_behind(x, y):
    if x:
        y = -y
    _keep(y)
    return y


def test_another_join_moves_what_lies_before_it_into_both_arms() -> None:
    facts, branch = _first(_with_code_behind)
    joined = joined_at(facts, branch, EXIT)
    assert joined.join == EXIT and joined.jump == branch.jump
    assert branch.join not in branch.taken_blocks | branch.fallthrough_blocks
    assert branch.join in joined.taken_blocks & joined.fallthrough_blocks


def test_the_join_that_a_branch_has_changes_nothing() -> None:
    facts, branch = _first(_with_code_behind)
    assert joined_at(facts, branch, branch.join) == branch
