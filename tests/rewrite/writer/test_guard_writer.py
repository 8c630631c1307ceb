"""Guards: what the primitive is given, and what becomes of its answer."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import pytest

from bcmend.analysis.facts import facts_of
from bcmend.bytecode.decode import decode
from bcmend.names import NAMESPACE
from bcmend.rewrite.sites.branch import propose_guard
from bcmend.rewrite.sites.plan import GuardLowering, Plan, Site
from bcmend.rewrite.writer.code_writer import CodeWriter


class Spy:
    """Records what ``guard`` is given, and answers as it is told."""

    def __init__(self, *, is_asked: bool = True, is_deferred: bool = True) -> None:
        self.is_asked, self.is_deferred = is_asked, is_deferred
        self.calls: list[tuple[Any, ...]] = []

    def data_dependent(self, key: str, condition: object) -> bool:
        return self.is_asked

    def guard(self, *arguments: Any) -> bool:
        self.calls.append(arguments)
        return self.is_deferred


def _written(function: FunctionType, spy: Spy) -> FunctionType:
    facts = facts_of(decode(function.__code__))
    sites = []
    for branch in facts.branches:
        lowering = propose_guard(facts, branch)
        assert isinstance(lowering, GuardLowering)
        sites.append(Site("f:guard", "guard", branch.jump, 1, 0, lowering))
    body = CodeWriter(facts, Plan(sites), {}).body(with_buffer=False)
    return FunctionType(body, {**function.__globals__, NAMESPACE: spy})


def _checks(x, limit, text):
    if x > limit:
        raise ValueError(f"{text}: {limit}")
    return x


def _checks_the_contrary(x, limit, text):
    if x <= limit:
        return x
    raise ValueError(text)


def test_a_check_is_given_its_arm_and_control_continues() -> None:
    spy = Spy()
    assert _written(_checks, spy)(5, 3, "large") == 5
    ((key, condition, raises_if, arm, inputs),) = spy.calls
    assert (key, condition, raises_if, inputs) == ("f:guard", True, True, (3, "large"))
    with pytest.raises(ValueError, match=r"^large: 3$"):
        arm(*inputs)


def test_a_check_that_raises_if_its_condition_is_false() -> None:
    spy = Spy()
    assert _written(_checks_the_contrary, spy)(5, 3, "large") == 5
    ((_, condition, raises_if, arm, inputs),) = spy.calls
    assert condition is False and raises_if is False
    with pytest.raises(ValueError, match=r"^large$"):
        arm(*inputs)


@pytest.mark.parametrize("spy", [Spy(is_asked=False), Spy(is_deferred=False)])
def test_otherwise_the_original_raises(spy: Spy) -> None:
    written = _written(_checks, spy)
    assert written(1, 3, "large") == 1
    with pytest.raises(ValueError, match="large: 3"):
        written(5, 3, "large")


def test_an_arm_is_given_the_operand_that_it_drops() -> None:
    names: dict[str, Any] = {}
    # Not written here, since pytest rewrites assertions.
    exec("def between(x, y):\n    assert 0 < x.real < y\n    return x", names)
    spy = Spy()
    assert _written(names["between"], spy)(5, 3) == 5
    first, second = spy.calls
    # The middle operand of the comparison is on the stack at the first of its two tests.
    assert first[1:3] == (True, False) and first[4] == (5,)
    assert second[1:3] == (False, False) and second[4] == ()
    for _, _, _, arm, inputs in spy.calls:
        with pytest.raises(AssertionError):
            arm(*inputs)


def test_cells_are_shared_with_the_arm() -> None:
    def f(x):
        text = "before"

        def change():
            nonlocal text
            text = "after"

        if x:
            raise ValueError(text)
        change()
        return text

    spy = Spy()
    assert _written(f, spy)(1) == "after"
    arm, inputs = spy.calls[0][3:]
    assert arm.__code__.co_freevars == ("text",)
    with pytest.raises(ValueError, match="after"):
        arm(*inputs)
