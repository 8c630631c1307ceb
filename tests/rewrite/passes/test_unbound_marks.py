"""Locals that may be unbound: what marks make of them, in plain Python."""

from __future__ import annotations

from types import FunctionType

import pytest

from bcmend.analysis.code_effects import names_of
from bcmend.analysis.facts import facts_of
from bcmend.bytecode.decode import decode
from bcmend.names import NAMESPACE, UNBOUND
from bcmend.rewrite.passes.unbound_marks import checks_in, with_marks
from bcmend.rewrite.sites.plan import BranchLowering, GuardLowering
from tests.stand_ins import (
    EverythingMended,
    NothingToMend,
    RefusedWhileTraced,
    installed,
    outcome_of,
    sites_of,
)


def _bound_by_one_of_two(x, y):
    if x > 0:
        z = x
    if y > 0:
        z = y
    return [z, x]


def _read_by_an_arm(x, y):
    for z in range(y):  # noqa: B007
        pass
    if x > 0:
        x = z
    return x


def _read_by_a_check(x, y):
    if y > 0:
        message = "wrong"
    if x > 0:
        raise ValueError(message)
    return x


def _deleted_in_an_arm(x, y):
    z = x + y
    if x > 0:
        del z
    return [z, x]


def _deleted_and_bound_again(x, y):
    if x > 0:
        x += y
        del y
    else:
        x -= y
    y = x
    return [x, y]


def _deleted_twice(x, y):
    if x > 0:
        del y
    if x > -1:
        del y
    return x


def _missed_and_caught(x, y):
    try:
        if x > 0:
            z = x
        if y > 0:
            x += z
    except UnboundLocalError as error:
        z = str(error)
    return [x, z]


def _shadowed_by_a_comprehension(x, y):
    if x > 0:
        z = x
    squares = [z * z for z in range(3) if z > y]
    return squares, z


def _deleted_in_a_loop(x, y):
    for each in (x, y, 1):
        if each > 0:
            z = each
            continue
        if y > 0:
            del z
    return z


FUNCTIONS = [
    _bound_by_one_of_two,
    _read_by_an_arm,
    _read_by_a_check,
    _deleted_in_an_arm,
    _deleted_and_bound_again,
    _deleted_twice,
    _missed_and_caught,
    _shadowed_by_a_comprehension,
    _deleted_in_a_loop,
]
CALLS = [(1, 1), (1, 0), (0, 1), (0, 0), (-1, 2), (-1, -1)]


def _decisions(function: FunctionType) -> list[object]:
    return [site.decision for site in sites_of(function)]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("primitives", [EverythingMended, NothingToMend, RefusedWhileTraced])
def test_a_marked_function_does_the_same(function: FunctionType, primitives: type) -> None:
    mended = installed(function, primitives())
    for arguments in CALLS:
        assert outcome_of(mended, *arguments) == outcome_of(function, *arguments)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_nothing_is_refused_for_it(function: FunctionType) -> None:
    assert not [each for each in _decisions(function) if getattr(each, "unbound", ())]


def test_a_mark_goes_in_and_comes_out() -> None:
    first, second = _decisions(_bound_by_one_of_two)
    assert isinstance(first, BranchLowering) and isinstance(second, BranchLowering)
    assert "z" in first.inputs and "z" in first.outputs
    assert "z" in second.inputs and "z" in second.outputs


def test_a_check_is_given_a_mark() -> None:
    branch, guard = _decisions(_read_by_a_check)
    assert isinstance(branch, BranchLowering) and isinstance(guard, GuardLowering)
    assert guard.inputs == ("message",)


def _tests_for_marks(function: FunctionType, *names: str) -> int:
    """Count the reads of a marked function that ask for the mark first."""
    marked = with_marks(facts_of(decode(function.__code__)), frozenset(names))
    return [each.arg for each in marked.instructions].count((False, "@bcmend"))


def test_only_reads_that_may_meet_a_mark_ask_for_it() -> None:
    def f(x):
        if x:
            y = 1
            x += y
        x += y
        x += y
        return [x, y]

    assert _tests_for_marks(f, "y") == 1


def test_an_argument_begins_with_its_value() -> None:
    def f(x, y):
        del x
        return y

    marked = with_marks(facts_of(decode(f.__code__)), frozenset(["x", "y"]))
    assert [each.arg for each in marked.instructions].count(UNBOUND) == 1


def test_nothing_is_marked_where_nothing_stands_in_the_way() -> None:
    def f(x, y):
        for z in range(y):  # noqa: B007
            pass
        if x > 0:
            x += 1
        return x + z

    body = installed(f, EverythingMended()).__code__
    assert all(UNBOUND not in each.co_consts for each in (body, *_nested(body)))


def _nested(code: object) -> list[object]:
    constants = getattr(code, "co_consts", ())
    inner = [each for each in constants if hasattr(each, "co_consts")]
    return inner + [each for one in inner for each in _nested(one)]


def test_a_check_stands_before_the_read_that_it_guards() -> None:
    facts = facts_of(decode(_bound_by_one_of_two.__code__))
    assert checks_in(facts, 0, len(facts.instructions)) == {}
    marked = facts_of(with_marks(facts, frozenset(["z"])))
    ((check, read),) = checks_in(marked, 0, len(marked.instructions)).items()
    first = marked.instructions[check]
    assert check < read and marked.instructions[read].arg == "z"
    assert first.op == "PUSH_NULL" or names_of(first) == NAMESPACE
    assert marked.depth_before(check) == marked.depth_before(read)


def test_a_local_that_is_bound_is_not_checked() -> None:
    facts = facts_of(decode(_bound_by_one_of_two.__code__))
    marked = facts_of(with_marks(facts, frozenset(["x"])))
    assert checks_in(marked, 0, len(marked.instructions)) == {}
    assert marked.instructions == facts.instructions
