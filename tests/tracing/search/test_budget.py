"""A search for lowerings that takes too long ends, and what it was for is left to torch."""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from bcmend.tracing.search import budget
from bcmend.tracing.search.assumptions import Claim
from bcmend.tracing.search.falsified import Falsified
from bcmend.tracing.sites import nesting_limits
from bcmend.tracing.sites.site_table import LiveSite

CODE = (lambda: None).__code__


class _Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Clock]:
    found = _Clock()
    monkeypatch.setattr(budget, "now", found)
    budget.begin_call()
    yield found
    budget.begin_call()
    budget.end_call()


def _tracer() -> Any:
    return SimpleNamespace(output=SimpleNamespace(root_tx=SimpleNamespace(f_code=CODE)))


def _site(name: str) -> LiveSite:
    return LiveSite(name, "branch", CODE)


def _arm(tx: Any, clock: _Clock, seconds: float) -> None:
    with nesting_limits.in_one_more_arm(tx):
        clock.seconds += seconds


def test_all_branches_of_a_chain_that_takes_too_long_are_withdrawn(clock: _Clock) -> None:
    tx, outer, inner = _tracer(), _site("tests.outer"), _site("tests.inner")
    with pytest.raises(Falsified), nesting_limits.mending(tx, outer):
        with nesting_limits.mending(tx, inner):
            _arm(tx, clock, 1.0)
            _arm(tx, clock, budget.SECONDS + budget.PATHS)
            nesting_limits.require_time(tx)
    assert outer.withdrawn == inner.withdrawn == "search-too-long"
    assert not outer.holds(Claim.MENDED)


def test_a_first_path_takes_as_long_as_it_takes(clock: _Clock) -> None:
    tx, site = _tracer(), _site("tests.long")
    with nesting_limits.mending(tx, site):
        with nesting_limits.in_one_more_arm(tx):
            clock.seconds += 1000 * budget.SECONDS
            nesting_limits.require_time(tx)
        _arm(tx, clock, 1000 * budget.SECONDS)
    assert site.active


def test_the_turns_of_a_loop_are_no_first_path(clock: _Clock) -> None:
    tx, site = _tracer(), _site("tests.loop")
    with pytest.raises(Falsified), nesting_limits.mending(tx, site):
        clock.seconds += 1
        with nesting_limits.mending(tx, site):
            clock.seconds += budget.SECONDS + budget.PATHS
            nesting_limits.require_time(tx)
    assert site.withdrawn == "search-too-long"


def test_what_is_mended_costs_the_search_nothing(clock: _Clock) -> None:
    tx = _tracer()
    for number in range(100):
        with nesting_limits.mending(tx, _site(f"tests.{number}")):
            _arm(tx, clock, 0.0)
            _arm(tx, clock, budget.SECONDS / 2)
    assert not budget.is_exceeded(budget.SECONDS)


def test_traces_that_are_given_up_add_up_for_the_length_of_a_call(clock: _Clock) -> None:
    tx, site = _tracer(), _site("tests.anew")
    for _ in range(2):
        with pytest.raises(ValueError), nesting_limits.mending(tx, site):
            _arm(tx, clock, 0.0)
            clock.seconds += budget.SECONDS * 0.4
            raise ValueError
    assert budget.is_exceeded(budget.SECONDS * 0.4)
    budget.begin_call()
    assert not budget.is_exceeded(budget.SECONDS * 0.4)


def test_outside_of_a_call_each_code_has_its_own_limit(clock: _Clock) -> None:
    tx = _tracer()
    for is_in_call in (True, False):
        budget.begin_call()
        if not is_in_call:
            budget.end_call()
            budget.begin_trace(CODE)
        with pytest.raises(ValueError), nesting_limits.mending(tx, _site("tests.first")):
            clock.seconds += budget.SECONDS * 0.8
            raise ValueError
        budget.begin_trace(CODE)
        assert budget.is_exceeded(budget.SECONDS * 0.8)
        budget.begin_trace(_tracer.__code__)
        assert budget.is_exceeded(budget.SECONDS * 0.8) is is_in_call


def test_later_limits_of_a_call_are_shorter_but_not_nothing(clock: _Clock) -> None:
    limits = []
    for _ in range(6):
        limits.append(budget.limit())
        budget.begin_anew()
    assert limits == sorted(limits, reverse=True)
    assert limits[1] < limits[0] and limits[-1] == 1.0


def _in_vain(clock: _Clock, seconds: float) -> None:
    with budget.tracing(CODE):
        clock.seconds += seconds
        budget.note_in_vain()


def _in_branches_in_vain(tx: Any, clock: _Clock, site: LiveSite, seconds: float) -> None:
    """Make a trace that does nothing but branch, without a lowering, and is made in vain."""
    with budget.tracing(CODE):
        with nesting_limits.mending(tx, site):
            _arm(tx, clock, 0.0)
            clock.seconds += seconds
            site.refuse("arms-differ")
        budget.note_in_vain()


def test_traces_made_in_vain_add_up_to_a_search_that_is_over(clock: _Clock) -> None:
    tx, site = _tracer(), _site("tests.vain")
    for _ in range(3):
        assert not budget.is_over()
        _in_branches_in_vain(tx, clock, site, budget.SEARCH_SECONDS * 0.4)
    assert budget.is_over() and not budget.is_long_over()
    _in_branches_in_vain(tx, clock, site, budget.SEARCH_SECONDS * budget._GRACE)
    assert budget.is_long_over()
    budget.begin_call()
    assert not budget.is_over()


def test_a_search_may_make_some_traces_however_long_they_are(clock: _Clock) -> None:
    for _ in range(int(budget.TRACES)):
        _in_vain(clock, 100 * budget.SEARCH_SECONDS)
        assert not budget.is_over()
    _in_vain(clock, 100 * budget.SEARCH_SECONDS)
    assert budget.is_over()


def test_a_search_that_is_over_stays_so(clock: _Clock) -> None:
    tx = _tracer()
    _in_branches_in_vain(tx, clock, _site("tests.vain"), 2 * budget.SEARCH_SECONDS)
    assert budget.is_over()
    with budget.tracing(CODE):
        clock.seconds += 100 * budget.SEARCH_SECONDS
    assert budget.is_over()


def test_a_trace_that_is_captured_costs_the_search_nothing(clock: _Clock) -> None:
    for _ in range(10):
        with budget.tracing(CODE):
            clock.seconds += budget.SEARCH_SECONDS
    assert not budget.is_over()


def _turn(tx: Any, clock: _Clock, site: LiveSite, seconds: float) -> None:
    with nesting_limits.mending(tx, site):
        _arm(tx, clock, 0.0)
        clock.seconds += seconds


def test_a_search_goes_on_for_as_long_as_its_branches_get_a_lowering(clock: _Clock) -> None:
    tx, site = _tracer(), _site("tests.turns")
    with budget.tracing(CODE):
        for _ in range(4):
            assert not budget.is_exceeded(budget.SEARCH_SECONDS * 0.6, is_unrolled=True)
            _turn(tx, clock, site, budget.SEARCH_SECONDS * 0.6)
        budget.note_in_vain()
    assert not budget.is_over()


def test_branches_with_a_lowering_do_not_make_a_search_endless(clock: _Clock) -> None:
    tx, site = _tracer(), _site("tests.turns")
    for _ in range(4):
        with budget.tracing(CODE):
            _turn(tx, clock, site, budget.MENDED_SECONDS)
            budget.note_in_vain()
    assert budget.is_over()


@pytest.mark.parametrize(("kind", "times"), [("branch", 1), ("split", nesting_limits.FORMS)])
def test_a_loop_is_unrolled_where_a_branch_is_inside_itself(kind: str, times: int) -> None:
    chain = nesting_limits._Chain([LiveSite("tests.form", kind, CODE)] * times)
    assert not chain.is_unrolled
    chain.sites.append(chain.sites[0])
    assert chain.is_unrolled


@pytest.mark.parametrize("is_unrolled", [True, False])
def test_a_loop_that_is_unrolled_has_what_is_left_of_the_search(
    clock: _Clock, is_unrolled: bool
) -> None:
    seconds = budget.SEARCH_SECONDS * 1.1
    assert budget.is_exceeded(seconds, is_unrolled=is_unrolled) is is_unrolled


def test_an_arm_outside_of_branches_is_no_first_path(clock: _Clock) -> None:
    clock.seconds = 1000.0
    _arm(_tracer(), clock, 0.0)
    assert budget.limit() == budget.SECONDS


def _assert_given_up(program: Callable[[Tensor], Tensor], **of_budget: Any) -> None:
    """Assert that a search with other limits gives up a program, which is equal to eager."""
    x = torch.tensor([1.0, 20.0])
    expected = program(x)
    bcmend.patch(program)
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in of_budget.items():
                patch.setattr(budget, name, value)
            found = torch.compile(program, backend="eager")(x)
        refusals = {site.refusal for site in bcmend.report(program).sites}
    finally:
        bcmend.unpatch(program)
        torch._dynamo.reset()
    assert torch.equal(found, expected)
    assert "search-too-long" in refusals


def test_nothing_more_is_mended_once_a_search_is_over() -> None:
    def program(x: Tensor) -> Tensor:
        first = int(x.sum())
        if first < 0:
            raise ValueError("negative")
        if x.mean() > 0:
            x = x * 2
        return x + first

    _assert_given_up(program, SEARCH_SECONDS=-1.0, TRACES=0.0)


def test_a_call_that_is_given_up_is_that_of_eager_execution() -> None:
    def program(x: Tensor) -> Tensor:
        for bound in range(12):
            if x.sum() > bound:
                x = x - 1
            else:
                return x * bound
        return x

    _assert_given_up(program, now=itertools.count(step=2.0).__next__)


class _Slow:
    """An object in a circle whose end takes a while."""

    def __init__(self) -> None:
        self.circle = self

    def __del__(self) -> None:
        end = time.thread_time() + 0.2
        while time.thread_time() < end:
            pass


def test_what_python_collects_is_no_part_of_a_trace() -> None:
    callbacks = list(gc.callbacks)
    gc.collect()
    with budget.tracing(CODE), budget.tracing(CODE):
        before, began = budget.now(), time.thread_time()
        _Slow()
        gc.collect()
        assert time.thread_time() - began > 0.2
        assert budget.now() - before < 0.1
    assert gc.callbacks == callbacks


def test_the_clock_is_not_asked_at_quick_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    with budget.tracing(CODE):
        monkeypatch.setattr(time, "thread_time", lambda: asked.append("when") or 0.0)
        gc.collect(0)
        gc.collect(1)
        assert not asked
        gc.collect()
        monkeypatch.undo()
    assert asked
