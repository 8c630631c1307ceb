"""What is decided about the sites of a function."""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import Any

import pytest

from bcmend.analysis.facts import Facts, facts_of
from bcmend.bytecode.decode import decode
from bcmend.names import SPLIT, UNBOUND
from bcmend.policy import DEFAULT, Policy
from bcmend.rewrite.decisions import (
    Decision,
    decided,
    is_branch_site,
    is_likely,
    refusal_of_all,
)
from bcmend.rewrite.mended import Context
from bcmend.rewrite.sites.plan import BranchLowering, GuardLowering, OutputLowering, SiteRefusal


def _facts(function: FunctionType) -> Facts:
    return facts_of(decode(function.__code__))


def _context(function: FunctionType, facts: Facts, *, asked: bool, policy: Policy) -> Context:
    code_id = id(function.__code__)
    jumps = frozenset((code_id, facts.instructions[each.jump].offset) for each in facts.branches)
    return Context("module", {}, policy, asked=jumps if asked else frozenset())


def _decided(
    function: FunctionType,
    *,
    asked: bool = False,
    policy: Policy = DEFAULT,
    whole: SiteRefusal | None = None,
    may_be_marked: bool = True,
    splits: frozenset[int] = frozenset(),
) -> tuple[Facts, list[Decision]]:
    facts, code = _facts(function), function.__code__
    found = _context(function, facts, asked=asked, policy=policy)
    places = frozenset((id(code), offset) for offset in splits)
    context = Context("module", {}, policy, asked=found.asked, splits=places)
    return decided(code, facts, context, whole, may_be_marked=may_be_marked)


def _model(x: Any, flag: Any) -> Any:
    if x.max() > 3:
        raise ValueError("too large")
    print("x", x)
    if flag:
        x = x + 1
    if x.sum() > 0:
        x = x * 2
    return max(x, flag, key=len)


def _kinds(decisions: list[Decision]) -> list[tuple[str, type]]:
    return [(kind, type(decision)) for _, kind, decision in decisions]


def test_sites_are_decided_in_the_order_of_their_instructions() -> None:
    _, decisions = _decided(_model)
    assert _kinds(decisions) == [
        ("guard", GuardLowering),
        ("output", OutputLowering),
        ("branch", BranchLowering),
    ]
    assert [index for index, _, _ in decisions] == sorted(index for index, _, _ in decisions)


def test_a_jump_where_a_trace_stopped_is_a_site() -> None:
    _, decisions = _decided(_model, asked=True)
    assert [kind for _, kind, _ in decisions] == ["guard", "output", "branch", "branch"]


def test_the_policy_leaves_output_and_guards() -> None:
    _, decisions = _decided(_model, policy=Policy(output="keep", guards="keep"))
    assert [(kind, getattr(each, "slug", "")) for _, kind, each in decisions] == [
        ("guard", "policy-keep"),
        ("output", "policy-keep"),
        ("branch", ""),
    ]


def test_a_refusal_of_all_is_that_of_every_site() -> None:
    whole = SiteRefusal("coroutine")
    _, decisions = _decided(_model, whole=whole)
    assert [decision for _, _, decision in decisions] == [whole] * 3


def _may_be_unbound(x: Any) -> Any:
    if x.any():
        y = x
    return max(x, y, key=len)


def test_a_local_that_may_be_unbound_gets_a_mark() -> None:
    facts, ((_, kind, decision),) = _decided(_may_be_unbound)
    assert kind == "branch" and isinstance(decision, BranchLowering)
    assert decision.outputs == ("y",)
    assert UNBOUND in [each.arg for each in facts.instructions]


def test_without_marks_it_is_refused() -> None:
    facts, ((_, _, decision),) = _decided(_may_be_unbound, may_be_marked=False)
    assert isinstance(decision, SiteRefusal) and decision.unbound == {"y"}
    assert facts.instructions == _facts(_may_be_unbound).instructions


def test_code_is_split_where_that_is_asked_for() -> None:
    def f(x: Any, y: Any) -> Any:
        z = x + y
        return z

    facts = _facts(f)
    (add,) = (each for each in facts.instructions if each.op == "BINARY_OP")
    _, ((_, kind, decision),) = _decided(f, splits=frozenset([add.offset]))
    assert kind == SPLIT and isinstance(decision, BranchLowering)
    assert decision.then_entry == decision.else_entry


def test_a_loop_up_to_a_number_of_a_tensor_is_split() -> None:
    def f(x: Any) -> Any:
        total = 0
        for each in range(int(x)):
            total = total + each
        return total

    facts, decisions = _decided(f)
    ((index, kind, _),) = decisions
    assert kind == SPLIT and facts.instructions[index].op == "FOR_ITER"


# --- single questions ----------------------------------------------------------------------------


async def _coroutine(x: Any) -> Any:
    return x


def _looks_at_its_frame() -> Any:
    return locals()


def _has_an_attribute_of_that_name(x: Any) -> Any:
    return x.locals


@pytest.mark.parametrize(
    ("function", "slug", "detail"),
    [(_coroutine, "coroutine", ""), (_looks_at_its_frame, "frame-introspection", "locals")],
)
def test_a_function_whose_code_cannot_move(function: Any, slug: str, detail: str) -> None:
    refusal = refusal_of_all(function.__code__, _facts(function))
    assert refusal is not None and (refusal.slug, refusal.detail) == (slug, detail)


@pytest.mark.parametrize("function", [_model, _has_an_attribute_of_that_name])
def test_any_other_function(function: Any) -> None:
    assert inspect.isfunction(function)
    assert refusal_of_all(function.__code__, _facts(function)) is None


def test_a_condition_is_likely_by_its_looks_or_because_a_trace_stopped_there() -> None:
    facts, code = _facts(_model), _model.__code__
    guard, flag, last = facts.branches
    looks = Context("module", {}, DEFAULT)
    assert is_likely(code, facts, guard.jump, looks) and is_likely(code, facts, last.jump, looks)
    assert not is_likely(code, facts, flag.jump, looks)
    stopped = _context(_model, facts, asked=True, policy=DEFAULT)
    assert is_likely(code, facts, flag.jump, stopped)


def test_a_guard_is_a_site_but_no_branch_site() -> None:
    facts, code = _facts(_model), _model.__code__
    context = Context("module", {}, DEFAULT)
    found = [is_branch_site(code, context, facts, each) for each in facts.branches]
    assert found == [False, False, True]


def test_a_branch_of_which_both_arms_raise_is_no_site() -> None:
    def f(x: Any) -> Any:
        if x.any():
            raise KeyError(x)
        raise ValueError(x)

    assert _decided(f)[1] == []


def test_the_test_of_what_exit_returned_is_no_site() -> None:
    def f(x: Any) -> Any:
        with x:
            x.run()
        return x

    assert len(_facts(f).branches) == 1
    assert _decided(f, asked=True)[1] == []
