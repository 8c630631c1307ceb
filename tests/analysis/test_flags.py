"""Flags, and what is live along the paths that they leave feasible."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import pytest

from bcmend.analysis.facts import Facts, facts_of
from bcmend.analysis.flags import flags_inside, flags_of, live_by_flags
from bcmend.bytecode.decode import decode
from bcmend.cfg.regions import Branch
from bcmend.rewrite.sites.widen import wider_forms


def _facts(function: FunctionType) -> Facts:
    return facts_of(decode(function.__code__))


def _branch_at(function: FunctionType, facts: Facts, line: int) -> Branch:
    """Return the branch of the line ``line`` lines below the ``def``."""
    wanted = function.__code__.co_firstlineno + line
    (found,) = [
        branch
        for branch in facts.branches
        if (place := facts.instructions[branch.jump].location) and place.lineno == wanted
    ]
    return found


def _live_at_join(function: FunctionType, line: int, flags: set[str]) -> frozenset[str]:
    facts = _facts(function)
    join = _branch_at(function, facts, line).join
    everywhere = frozenset(range(len(facts.graph.blocks)))
    return live_by_flags(facts, frozenset(flags), join, everywhere, frozenset())


def _assigned(p: Any, x: Any) -> Any:
    for step in x:
        flag = False
        if p(step):
            flag = True
        if not flag:
            out = step.layer()
        if flag:
            continue
        x = out.value
    return x


def _conditional(p: Any, x: Any) -> Any:
    flag = True if p else False
    if flag:
        x = x.layer()
    return x


def test_a_flag_is_what_one_arm_sets_otherwise_than_the_other() -> None:
    facts = _facts(_assigned)
    assert flags_of(facts, _branch_at(_assigned, facts, 3)) == {"flag"}


def test_a_conditional_expression_sets_a_flag_where_its_arms_meet() -> None:
    facts = _facts(_conditional)
    assert flags_of(facts, _branch_at(_conditional, facts, 1)) == {"flag"}


def test_what_both_arms_set_alike_is_no_flag() -> None:
    def f(p, x):
        if p:
            flag, x = True, 1
        else:
            flag, x = True, 2
        if flag:
            return x
        return None

    facts = _facts(f)
    assert flags_of(facts, _branch_at(f, facts, 1)) == set()


def test_flags_inside_a_branch_are_set_and_tested_there() -> None:
    facts = _facts(_assigned)
    branch = _branch_at(_assigned, facts, 3)
    assert flags_inside(facts, branch) == set()
    (beyond, *_) = wider_forms(facts, branch)
    assert flags_inside(facts, beyond) == {"flag"}


@pytest.mark.parametrize(("count", "is_followed"), [(3, True), (4, False)])
def test_so_many_flags_are_followed_and_no_more(count: int, is_followed: bool) -> None:
    names = {f"flag{number}" for number in range(count)}
    lines = ["def f(p, x):", "    if p(x):"]
    for name in sorted(names):
        lines += [f"        {name} = False", f"        if x.{name}:", f"            {name} = True"]
    for name in sorted(names):
        lines += [f"        if {name}:", "            x = x.layer()"]
    made: dict[str, Any] = {}
    exec("\n".join([*lines, "    return x"]), made)
    facts = _facts(made["f"])
    outermost = min(facts.branches, key=lambda branch: branch.jump)
    assert flags_inside(facts, outermost) == (names if is_followed else set())


def test_a_known_flag_leaves_one_way() -> None:
    # At the head of the loop every iteration binds ``out`` before it reads it, or does not read it.
    line = 7  # ``if flag: continue``
    assert "out" in _live_at_join(_assigned, line, set())
    assert "out" not in _live_at_join(_assigned, line, {"flag"})


def test_a_flag_that_another_value_may_be_stored_in_leaves_both_ways() -> None:
    def f(p, x):
        for step in x:
            flag = False
            if p(step):
                flag = step
            if not flag:
                out = step.layer()
            if flag:
                continue
            x = out.value
        return x

    # ``flag`` may be any object here, and its truth may be another each time it is asked for.
    assert "out" in _live_at_join(f, 7, {"flag"})


def test_a_flag_that_is_unbound_in_between_leaves_both_ways() -> None:
    def f(p, x):
        for step in x:
            flag = True
            if p(step):
                del flag
            if not flag:
                out = step.layer()
            x = out.value if not flag else x
        return x

    facts = _facts(f)
    everywhere = frozenset(range(len(facts.graph.blocks)))
    assert "out" in live_by_flags(facts, frozenset({"flag"}), 0, everywhere, frozenset())


def test_a_handler_knows_no_flag() -> None:
    def f(p, x):
        try:
            flag = True
            x.first()
            flag = False
            x.second()
        except ValueError:
            if flag:
                return x.third
            return p
        return x

    facts = _facts(f)
    everywhere = frozenset(range(len(facts.graph.blocks)))
    assert {"p", "x"} <= live_by_flags(facts, frozenset({"flag"}), 0, everywhere, frozenset())


def test_without_flags_it_is_liveness() -> None:
    facts = _facts(_assigned)
    everywhere = frozenset(range(len(facts.graph.blocks)))
    for block in facts.graph.blocks:
        if block.index in facts.graph.reachable:
            found = live_by_flags(facts, frozenset(), block.index, everywhere, frozenset())
            assert found == facts.liveness.live_in[block.index]
