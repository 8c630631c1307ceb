"""Loops whose turns end at one test, and that the function still does what it did."""

from __future__ import annotations

import dis
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import pytest

from bcmend.analysis.facts import Facts, facts_of
from bcmend.bytecode.decode import decode
from bcmend.bytecode.opcodes import TRUTHS
from bcmend.cfg.loops import loops_around
from bcmend.names import CALLBACK, LEAVES_BEGINS, NAMESPACE, TRACING
from bcmend.policy import DEFAULT
from bcmend.rewrite.mended import Context
from bcmend.rewrite.passes.loop_exits import with_joined_exits
from bcmend.rewrite.pipeline import mend
from tests.stand_ins import (
    EverythingMended,
    NothingToMend,
    RefusedWhileTraced,
    jumps_in,
    outcome_of,
    with_code,
)

LOG: list[object] = []


def _left_behind_another(x, y):
    count = 0
    for each in range(5):
        LOG.append(each)
        if each == x:
            count += 10
        elif each > y:
            break
    return count


def _left_within(x, y):
    for each in range(5):
        if each > x:
            LOG.append(each)
            if each > y:
                break
    return each


def _left_twice(x, y):
    for each in range(5):
        if each > x:
            break
        LOG.append(each)
        if each > y:
            break
        x = x - 1
    return each, x


def _returns_within(x, y):
    for each in range(5):
        if each == x:
            y = y + 1
        elif each == y:
            found = each * 2
            return found
        LOG.append(y)
    return -1


def _returns_and_breaks(x, y):
    found = None
    for each in range(6):
        if found is not None:
            if each == x:
                return found
            if found > 3:
                break
        found = each * y
    else:
        LOG.append("exhausted")
        found = "none"
    return found


def _goes_on(x, y):
    total = 0
    for each in range(6):
        if each == x:
            continue
        total += each
        if total > y:
            break
    return total


def _while(x, y):
    last = 0
    while x < 3:
        x += 1
        if y > 0:
            last = x
            if x == y:
                break
        LOG.append(last)
    return x, last


def _without_an_end(x, y):
    while True:
        x += 1
        value = x * y
        if 4 < value < 9:
            LOG.append(value)
        elif x > 4:
            break
        elif x < 0:
            continue
        else:
            y += 1
    return value


def _while_with_else(x, y):
    while x < 4:
        x += 2
        if x > y:
            if y > 1:
                break
            y += 3
    else:
        return "else", x
    return x


def _loop_in_a_loop(x, y):
    for each in range(3):
        for other in range(3):
            if other == x:
                LOG.append((each, other))
            elif each + other > y:
                break
        else:
            continue
        LOG.append(each)
        if each > 1:
            if x > 0:
                break
    return each, other


def _left_from_the_inner_loop(x, y):
    for each in range(3):
        for other in range(3):
            if other == x:
                LOG.append(other)
            elif each + other > y:
                return each, other
    return x


def _raises(x, y):
    for each in range(4):
        if each > x:
            if each == y:
                raise ValueError(each)
            elif each == y + 1:
                break
    return each


def _in_a_try(x, y):
    for each in range(4):
        try:
            LOG.append(4 // (each - x))
            if each > y:
                break
        except ZeroDivisionError:
            if y == 1:
                break
            continue
    return each


def _try_around(x, y):
    try:
        for each in range(4):
            if each > x:
                LOG.append(y // (each - 2))
            elif each == y:
                break
    except ZeroDivisionError:
        return "zero"
    finally:
        LOG.append("finally")
    return each


def _unbound_behind(x, y):
    for each in range(3):
        if each > x:
            if each > y:
                found = each
                break
    return found


def _with_operands(x, y):
    def inner():
        for each in (1, 2, 3):
            if each == x:
                LOG.append(each)
            elif each == y:
                return each * 7
        return y

    return 3 * inner() + inner()


def _conditions(x, y):
    total = 0
    for each in range(6):
        if each > x and total > y:
            break
        if (each == 2 or y < 0) and total < 9:
            total += each
            if total == 3 or x == 2:
                return total
    return total, each


PROGRAMS: list[Callable[..., object]] = [
    _left_behind_another,
    _left_within,
    _left_twice,
    _returns_within,
    _returns_and_breaks,
    _goes_on,
    _while,
    _without_an_end,
    _while_with_else,
    _loop_in_a_loop,
    _left_from_the_inner_loop,
    _raises,
    _in_a_try,
    _try_around,
    _unbound_behind,
    _with_operands,
    _conditions,
]
CALLS = [(x, y) for x in (-2, -1, 0, 1, 2, 3) for y in (-1, 0, 1, 2, 3)]


def _places(code: CodeType) -> frozenset[tuple[int, int]]:
    return frozenset(jumps_in(code))


def _joined(function: FunctionType, primitives: object) -> FunctionType:
    """Return ``function`` mended as if a trace had met all that it may."""
    names = {
        **function.__globals__,
        NAMESPACE: primitives,
        TRACING: lambda: True,
        CALLBACK: lambda: None,
    }
    places = _places(function.__code__)
    context = Context("module", names, DEFAULT, asked=places, joined_exits=places)
    return with_code(function, mend(function.__code__, context).shell, names)


@pytest.mark.parametrize("primitives", [NothingToMend, RefusedWhileTraced, EverythingMended])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__.strip("_"))
def test_a_program_does_what_it_did(program: FunctionType, primitives: type[Any]) -> None:
    joined = _joined(program, primitives())
    for arguments in CALLS:
        assert _seen(joined, arguments) == _seen(program, arguments)


def _seen(function: Callable[..., object], arguments: tuple[int, int]) -> object:
    LOG.clear()
    return outcome_of(function, *arguments), [*LOG]


def _facts(function: FunctionType) -> Facts:
    return facts_of(decode(function.__code__))


def _jumps(function: FunctionType) -> list[int]:
    """Return the offsets of jumps, but of those that only move on."""
    code = dis.get_instructions(function)
    return [each.offset for each in code if each.opname.startswith("POP_JUMP")]


def _leaving(facts: Facts) -> set[str]:
    """Return the tests of flags at which a loop is left; empty for another jump that leaves one."""
    found = set()
    for branch in facts.branches:
        around = loops_around(facts.graph, facts.graph.block_of[branch.jump])
        ways = {branch.taken, branch.fallthrough}
        if around and not ways <= around[0].blocks and not branch.taken_raises:
            is_cast = facts.instructions[branch.jump - 1].op in TRUTHS
            name = str(facts.instructions[branch.jump - 1 - is_cast].arg)
            found.add(name if name.startswith(LEAVES_BEGINS) else "")
    return found


@pytest.mark.parametrize(
    "program",
    [
        _left_behind_another,
        _left_within,
        _left_twice,
        _returns_within,
        _returns_and_breaks,
        _goes_on,
        _while,
        _without_an_end,
        _while_with_else,
        _left_from_the_inner_loop,
    ],
)
def test_a_loop_is_left_at_one_test(program: FunctionType) -> None:
    facts = _facts(program)
    assert _leaving(facts) == {""}
    (flag,) = _leaving(with_joined_exits(facts, _jumps(program)))
    assert flag.endswith("_0")


def test_a_loop_whose_turns_leave_a_block_stays() -> None:
    facts = _facts(_in_a_try)
    assert with_joined_exits(facts, _jumps(_in_a_try)) is facts


def test_a_loop_that_nobody_asked_about_stays() -> None:
    facts = _facts(_left_within)
    assert with_joined_exits(facts, []) is facts
