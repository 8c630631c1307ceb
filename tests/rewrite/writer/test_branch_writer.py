"""Calls of region functions: what the primitives are given, and what becomes of their answers."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import pytest

from bcmend.analysis.facts import Facts, facts_of
from bcmend.bytecode.decode import decode
from bcmend.names import NAMESPACE, SPLIT
from bcmend.rewrite.sites.branch import propose_branch
from bcmend.rewrite.sites.plan import BranchLowering, Plan, Site, chained
from bcmend.rewrite.sites.split_points import facts_with_splits, propose_split
from bcmend.rewrite.sites.widen import wider_forms
from bcmend.rewrite.writer.code_writer import CodeWriter


class Spy:
    """Records the calls of primitives; ``answer`` gives what ``branch`` and ``split`` return."""

    def __init__(self, answer: Callable[..., object]) -> None:
        self.answer = answer
        self.is_asked = True
        self.calls: list[tuple[Any, ...]] = []

    def data_dependent(self, key: str, condition: object) -> bool:
        return self.is_asked

    def undecided(self, key: str, operands: tuple[object, ...], subscripts: bool) -> bool:
        self.calls.append((key, operands, subscripts))
        return self.is_asked

    def branch(self, *arguments: Any) -> object:
        self.calls.append(arguments)
        return self.answer(*arguments)

    split = branch


def _never(*arguments: object) -> None:
    raise AssertionError("asked for a branch")


def _nothing(*arguments: object) -> None:
    return None


def _region(
    key: str,
    form: int,
    condition: object,
    function: FunctionType,
    first: tuple[Any, ...],
    entry: int,
    inputs: tuple[Any, ...],
) -> Any:
    """Run the region as the condition says."""
    return function(*first, function, entry if condition else entry + 1, inputs)


def _written(
    function: FunctionType, facts: Facts, sites: list[Site], spy: Spy
) -> tuple[FunctionType, list[CodeType]]:
    writer = CodeWriter(facts, Plan(sites), {})
    body = writer.body(with_buffer=False)
    names = {**function.__globals__, NAMESPACE: spy}
    made = FunctionType(body, names, function.__name__, None, function.__closure__)
    return made, writer.written


def _branches(function: FunctionType) -> tuple[Facts, list[Site]]:
    facts = facts_of(decode(function.__code__))
    sites = []
    for branch in facts.branches:
        lowering = propose_branch(facts, branch)
        assert isinstance(lowering, BranchLowering)
        sites.append(Site(f"f:{len(sites)}", "branch", branch.jump, 1, 0, lowering))
    return facts, sites


def _chooses(x, y, z):
    if x:
        y = y + 1
    else:
        z = z * y
    return max(y, z, key=abs)


def test_a_region_is_given_its_inputs_and_its_entry() -> None:
    spy = Spy(lambda *arguments: (10, 20))
    made, _ = _written(_chooses, *_branches(_chooses), spy)
    assert made("condition", 3, 4) == 20
    ((key, form, condition, function, first, entry, inputs),) = spy.calls
    assert (key, form, condition, first, entry) == ("f:0", 0, "condition", (), 0)
    assert inputs == (3, 4)  # y and z
    assert function(function, 0, (3, 4)) == (4, 4)
    assert function(function, 1, (3, 4)) == (3, 12)


def test_what_no_entry_has_gives_none() -> None:
    spy = Spy(lambda *arguments: (10, 20))
    made, _ = _written(_chooses, *_branches(_chooses), spy)
    made(True, 3, 4)
    function = spy.calls[0][3]
    assert function(function, 2, (3, 4)) is None


@pytest.mark.parametrize("x", [0, 1])
def test_without_a_result_the_original_runs(x: int) -> None:
    made, _ = _written(_chooses, *_branches(_chooses), Spy(_nothing))
    assert made(x, 3, 4) == _chooses(x, 3, 4)


@pytest.mark.parametrize("x", [0, 1])
def test_a_condition_that_is_not_data_dependent_is_left_to_the_original(x: int) -> None:
    spy = Spy(_never)
    spy.is_asked = False
    made, _ = _written(_chooses, *_branches(_chooses), spy)
    assert made(x, 3, 4) == _chooses(x, 3, 4) and spy.calls == []


def _returns(x, y):
    if x:
        return y + 1
    return y - 1


def test_a_returned_value_comes_in_a_tuple() -> None:
    spy = Spy(_region)
    made, _ = _written(_returns, *_branches(_returns), spy)
    assert (made(1, 5), made(0, 5)) == (6, 4)
    function = spy.calls[0][3]
    assert function(function, 0, (5,)) == (6,)
    spy.answer = lambda *arguments: ("other",)
    assert made(1, 5) == "other"


def _has_operands(x, y):
    z = [y, (y if x else 0), x]
    return max(z, [x], key=len)


def test_operands_that_the_arms_leave_are_results() -> None:
    spy = Spy(lambda *arguments: (7,))
    made, _ = _written(_has_operands, *_branches(_has_operands), spy)
    assert made(1, 5) == [5, 7, 1]
    function = spy.calls[0][3]
    assert function(function, 0, (5,)) == (5,) and function(function, 1, (5,)) == (0,)


def _meets_in_one_place(x, y):
    if x > 0:
        if y > 0:
            return x + y
        return x
    return y


def test_branches_with_one_join_share_a_function() -> None:
    spy = Spy(_region)
    made, written = _written(_meets_in_one_place, *_branches(_meets_in_one_place), spy)
    for x, y in ((1, 1), (1, -1), (-1, 1)):
        spy.calls.clear()
        assert made(x, y) == _meets_in_one_place(x, y)
        assert len({id(call[3].__code__) for call in spy.calls}) == 1
    assert len(written) == 2  # the body and one region
    made(1, 1)
    assert [call[5] for call in spy.calls[-2:]] == [0, 2]


def test_wider_forms_are_tried_where_narrower_ones_give_nothing() -> None:
    facts = facts_of(decode(_chooses.__code__))
    (branch,) = facts.branches
    forms = [propose_branch(facts, each) for each in (branch, *wider_forms(facts, branch))]
    lowering = chained([each for each in forms if isinstance(each, BranchLowering)])
    assert len(lowering.alternatives) == 2
    spy = Spy(lambda key, form, *more: ("wide",) if form == 1 else None)
    sites = [Site("f:0", "branch", branch.jump, 1, 0, lowering)]
    made, _ = _written(_chooses, facts, sites, spy)
    assert made(1, 3, 4) == "wide"
    assert [call[1] for call in spy.calls] == [0, 1]


def test_cells_are_shared_with_the_region() -> None:
    def f(x):
        count = 0

        def note():
            return count

        if x:
            count = 5
        else:
            count = 6
        return note()

    spy = Spy(_region)
    made, _ = _written(f, *_branches(f), spy)
    assert (made(1), made(0)) == (5, 6)
    assert spy.calls[0][3].__code__.co_freevars == ("count",)


# --- splits --------------------------------------------------------------------------------------


def _adds(x, y):
    z = [x + y, y]
    return z


def _split(function: FunctionType, spy: Spy, op: str = "BINARY_OP") -> FunctionType:
    facts = facts_of(decode(function.__code__))
    (add,) = (each for each in facts.instructions if each.op == op)
    facts, (index,) = facts_with_splits(facts, [add.offset])
    lowering = propose_split(facts, index)
    assert isinstance(lowering, BranchLowering)
    made, _ = _written(function, facts, [Site("f:0", SPLIT, index, 1, 0, lowering)], spy)
    return made


def test_a_split_is_given_its_operands_and_a_region_with_one_entry() -> None:
    spy = Spy(lambda *arguments: (42,))
    assert _split(_adds, spy)(3, 4) == [42, 4]
    asked, (key, form, function, first, entry, inputs, operands, subscripts) = spy.calls
    assert asked == ("f:0", (3, 4), False) and not subscripts
    assert (key, form, first, entry, operands) == ("f:0", 0, (), 0, (3, 4))
    spy.is_asked = False  # the region comes to the same instruction
    assert function(function, 0, inputs) == (7,)


def test_a_split_says_whether_it_reads_an_item() -> None:
    def f(x, y):
        return x[y]

    spy = Spy(_never)
    spy.is_asked = False
    assert _split(f, spy, "BINARY_SUBSCR")([3, 4], 1) == 4
    assert spy.calls == [("f:0", ([3, 4], 1), True)]


def test_a_split_that_is_not_undecided_runs_the_original() -> None:
    spy = Spy(_never)
    spy.is_asked = False
    assert _split(_adds, spy)(3, 4) == [7, 4]


def test_a_split_without_a_result_runs_the_original() -> None:
    spy = Spy(_nothing)
    assert _split(_adds, spy)(3, 4) == [7, 4]
    assert len(spy.calls) > 1
