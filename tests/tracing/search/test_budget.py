"""A search for lowerings that takes too long ends, and what it was for is left to torch."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from bcmend.tracing.search import budget
from bcmend.tracing.search.assumptions import Claim
from bcmend.tracing.search.calls import CURRENT
from bcmend.tracing.search.falsified import Falsified
from bcmend.tracing.sites import nesting_limits
from bcmend.tracing.sites.site_table import LiveSite

CODE = (lambda: None).__code__


class _Meter:
    def __init__(self) -> None:
        self.steps = 0

    def __call__(self) -> int:
        return self.steps


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Meter]:
    found = _Meter()
    monkeypatch.setattr(budget, "now", found)
    monkeypatch.setattr(CURRENT, "buffer", [])
    budget.forget()
    yield found
    budget.forget()


def _tracer(*, one_graph: bool = False) -> Any:
    root = SimpleNamespace(f_code=CODE)
    return SimpleNamespace(output=SimpleNamespace(root_tx=root), one_graph=one_graph)


def _site(name: str) -> LiveSite:
    return LiveSite(name, "branch", CODE)


def _arm(tx: Any, meter: _Meter, steps: int) -> None:
    with nesting_limits.in_one_more_arm(tx):
        meter.steps += steps


def test_all_branches_of_a_chain_that_takes_too_long_are_withdrawn(meter: _Meter) -> None:
    tx, outer, inner = _tracer(), _site("tests.outer"), _site("tests.inner")
    with pytest.raises(Falsified), nesting_limits.mending(tx, outer):
        with nesting_limits.mending(tx, inner):
            _arm(tx, meter, 1)
            _arm(tx, meter, budget.BRANCHES + budget.PATHS)
            nesting_limits.require_time(tx)
    assert outer.withdrawn == inner.withdrawn == "search-too-long"
    assert not outer.holds(Claim.MENDED)


def test_a_first_path_takes_as_long_as_it_takes(meter: _Meter) -> None:
    tx, site = _tracer(), _site("tests.long")
    with nesting_limits.mending(tx, site):
        with nesting_limits.in_one_more_arm(tx):
            meter.steps += 1000 * budget.BRANCHES
            nesting_limits.require_time(tx)
        _arm(tx, meter, 1000 * budget.BRANCHES)
    assert site.active


def test_each_arm_of_the_outermost_branch_has_a_first_path(meter: _Meter) -> None:
    tx, site = _tracer(), _site("tests.long")
    with nesting_limits.mending(tx, site):
        _arm(tx, meter, 1)  # as one that returns at once
        with nesting_limits.in_one_more_arm(tx):
            meter.steps += 1000 * budget.BRANCHES
            nesting_limits.require_time(tx)
    assert site.active


def test_what_follows_the_first_paths_of_both_arms_counts(meter: _Meter) -> None:
    tx, outer, inner = _tracer(), _site("tests.outer"), _site("tests.inner")
    with pytest.raises(Falsified), nesting_limits.mending(tx, outer):
        _arm(tx, meter, 1)
        with nesting_limits.in_one_more_arm(tx), nesting_limits.mending(tx, inner):
            _arm(tx, meter, 1)
            _arm(tx, meter, budget.BRANCHES + 2 * budget.PATHS)
            nesting_limits.require_time(tx)
    assert outer.withdrawn == "search-too-long"


def _nested(tx: Any, meter: _Meter, levels: int, arms: Sequence[int]) -> None:
    """Trace branches, one in another, each in these of its arms; others have one step."""
    if levels == 0:
        meter.steps += 100
        return
    with nesting_limits.mending(tx, _site(f"tests.level{levels}")):
        for arm in range(2):
            with nesting_limits.in_one_more_arm(tx):
                meter.steps += 1
                if arm in arms:
                    _nested(tx, meter, levels - 1, arms)


def test_branches_that_double_what_is_traced_are_given_up_early(meter: _Meter) -> None:
    with pytest.raises(Falsified):
        _nested(_tracer(), meter, 12, (0, 1))
    assert meter.steps < budget.BRANCHES // 50


def test_the_whole_search_is_made_where_one_graph_was_asked_for(meter: _Meter) -> None:
    with pytest.raises(Falsified):  # for the number of arms
        _nested(_tracer(one_graph=True), meter, 12, (0, 1))
    assert meter.steps > budget.BRANCHES // 5


@pytest.mark.parametrize("arms", [(0,), (1,)])
def test_branches_of_which_one_arm_ends_double_nothing(meter: _Meter, arms: Sequence[int]) -> None:
    _nested(_tracer(), meter, nesting_limits.LEVELS, arms)


def test_what_is_counted_anew_doubles_nothing(meter: _Meter) -> None:
    tx = _tracer()
    with nesting_limits.mending(tx, _site("tests.outer")), nesting_limits.in_one_more_arm(tx):
        with nesting_limits.mending(tx, _site("tests.known")):
            _nested(tx, meter, 4, (0, 1))
            meter.steps += 4 * budget.BRANCHES
            nesting_limits.count_anew(tx)
        with nesting_limits.mending(tx, _site("tests.inner")):
            _arm(tx, meter, 1)
        nesting_limits.require_time(tx)


def test_few_branches_may_double_what_is_traced(meter: _Meter) -> None:
    _nested(_tracer(), meter, 7, (0, 1))


def test_the_code_of_a_branch_that_is_known_is_no_search(meter: _Meter) -> None:
    tx = _tracer()
    with pytest.raises(ValueError), nesting_limits.mending(tx, _site("tests.known")):
        meter.steps += 1000 * budget.BRANCHES
        nesting_limits.count_anew(tx)
        raise ValueError  # as what falsifies an assumption there
    assert not budget.is_exceeded(1)


def test_the_turns_of_a_loop_are_no_first_path(meter: _Meter) -> None:
    tx, site = _tracer(), _site("tests.loop")
    with pytest.raises(Falsified), nesting_limits.mending(tx, site):
        meter.steps += 1
        with nesting_limits.mending(tx, site):
            meter.steps += budget.BRANCHES + budget.PATHS
            nesting_limits.require_time(tx)
    assert site.withdrawn == "search-too-long"


def test_what_is_mended_costs_the_search_nothing(meter: _Meter) -> None:
    tx = _tracer()
    for number in range(100):
        with nesting_limits.mending(tx, _site(f"tests.{number}")):
            _arm(tx, meter, 0)
            _arm(tx, meter, budget.BRANCHES // 2)
    assert not budget.is_exceeded(budget.BRANCHES)


def test_traces_that_are_given_up_add_up_for_the_length_of_a_call(meter: _Meter) -> None:
    tx, site = _tracer(), _site("tests.anew")
    for _ in range(2):
        with pytest.raises(ValueError), nesting_limits.mending(tx, site):
            _arm(tx, meter, 0)
            meter.steps += int(budget.BRANCHES * 0.4)
            raise ValueError
    assert budget.is_exceeded(int(budget.BRANCHES * 0.4))
    budget.forget()
    assert not budget.is_exceeded(int(budget.BRANCHES * 0.4))


def test_outside_of_a_call_each_code_has_its_own_limit(
    meter: _Meter, monkeypatch: pytest.MonkeyPatch
) -> None:
    tx = _tracer()
    for is_in_call in (True, False):
        budget.forget()
        if not is_in_call:
            monkeypatch.setattr(CURRENT, "buffer", None)
            budget.begin_trace(CODE)
        with pytest.raises(ValueError), nesting_limits.mending(tx, _site("tests.first")):
            meter.steps += int(budget.BRANCHES * 0.8)
            raise ValueError
        budget.begin_trace(CODE)
        assert budget.is_exceeded(int(budget.BRANCHES * 0.8))
        budget.begin_trace(_tracer.__code__)
        assert budget.is_exceeded(int(budget.BRANCHES * 0.8)) is is_in_call


def test_later_limits_of_a_call_are_shorter_but_not_nothing(meter: _Meter) -> None:
    limits = []
    for _ in range(6):
        limits.append(budget.limit())
        budget.begin_anew()
    assert limits == sorted(limits, reverse=True)
    assert limits[1] < limits[0] and limits[-1] == budget.LEAST


def _in_vain(meter: _Meter, steps: int) -> None:
    with budget.tracing(CODE):
        meter.steps += steps
        budget.note_in_vain()


def _in_branches_in_vain(tx: Any, meter: _Meter, site: LiveSite, steps: int) -> None:
    """Make a trace that does nothing but branch, without a lowering, and is made in vain."""
    with budget.tracing(CODE):
        with nesting_limits.mending(tx, site):
            _arm(tx, meter, 0)
            meter.steps += steps
            site.refuse("arms-differ")
        budget.note_in_vain()


def test_traces_made_in_vain_add_up_to_a_search_that_is_over(meter: _Meter) -> None:
    tx, site = _tracer(), _site("tests.vain")
    for _ in range(3):
        assert not budget.is_over()
        _in_branches_in_vain(tx, meter, site, int(budget.SEARCH * 0.4))
    assert budget.is_over() and not budget.is_long_over()
    _in_branches_in_vain(tx, meter, site, int(budget.SEARCH * budget._GRACE))
    assert budget.is_long_over()
    budget.forget()
    assert not budget.is_over()


def test_a_search_may_make_some_traces_however_long_they_are(meter: _Meter) -> None:
    for _ in range(int(budget.TRACES)):
        _in_vain(meter, 100 * budget.SEARCH)
        assert not budget.is_over()
    _in_vain(meter, 100 * budget.SEARCH)
    assert budget.is_over()


def test_a_search_that_is_over_stays_so(meter: _Meter) -> None:
    tx = _tracer()
    _in_branches_in_vain(tx, meter, _site("tests.vain"), 2 * budget.SEARCH)
    assert budget.is_over()
    with budget.tracing(CODE):
        meter.steps += 100 * budget.SEARCH
    assert budget.is_over()


def test_a_trace_that_is_captured_costs_the_search_nothing(meter: _Meter) -> None:
    for _ in range(10):
        with budget.tracing(CODE):
            meter.steps += budget.SEARCH
    assert not budget.is_over()


def _turn(tx: Any, meter: _Meter, site: LiveSite, steps: int) -> None:
    with nesting_limits.mending(tx, site):
        _arm(tx, meter, 0)
        meter.steps += steps


def test_a_search_goes_on_for_as_long_as_its_branches_get_a_lowering(meter: _Meter) -> None:
    tx, site = _tracer(), _site("tests.turns")
    with budget.tracing(CODE):
        for _ in range(4):
            assert not budget.is_exceeded(int(budget.SEARCH * 0.6), is_unrolled=True)
            _turn(tx, meter, site, int(budget.SEARCH * 0.6))
        budget.note_in_vain()
    assert not budget.is_over()


def test_branches_with_a_lowering_do_not_make_a_search_endless(meter: _Meter) -> None:
    tx, site = _tracer(), _site("tests.turns")
    for _ in range(4):
        with budget.tracing(CODE):
            _turn(tx, meter, site, budget.MENDED)
            budget.note_in_vain()
    assert budget.is_over()


@pytest.mark.parametrize(("kind", "times"), [("branch", 1), ("split", nesting_limits.FORMS)])
def test_a_loop_is_unrolled_where_a_branch_is_inside_itself(kind: str, times: int) -> None:
    level = nesting_limits._Level(LiveSite("tests.form", kind, CODE), form=0, began=0)
    chain = nesting_limits._Chain([level] * times)
    assert not chain.is_unrolled
    chain.levels.append(chain.levels[0])
    assert chain.is_unrolled


@pytest.mark.parametrize("is_unrolled", [True, False])
def test_a_loop_that_is_unrolled_has_what_is_left_of_the_search(
    meter: _Meter, is_unrolled: bool
) -> None:
    steps = int(budget.SEARCH * 1.1)
    assert budget.is_exceeded(steps, is_unrolled=is_unrolled) is is_unrolled


def test_an_arm_outside_of_branches_is_no_first_path(meter: _Meter) -> None:
    meter.steps = 1000
    _arm(_tracer(), meter, 0)
    assert budget.limit() == budget.BRANCHES


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

    _assert_given_up(program, SEARCH=-1, TRACES=0)


def test_a_call_that_is_given_up_is_that_of_eager_execution() -> None:
    def program(x: Tensor) -> Tensor:
        for bound in range(12):
            if x.sum() > bound:
                x = x - 1
            else:
                return x * bound
        return x

    _assert_given_up(program, now=itertools.count(step=budget.BRANCHES // 3).__next__)


def _search(x: Tensor) -> Any:
    """Look for what no lowering is found of, at the limits."""
    seen: list[int] = []
    for row in range(6):
        for other in range(6):
            if x[row] > x[other] and row not in seen:
                seen.append(row)
    return x * len(seen), seen


def _searched() -> tuple[int, list[tuple[str | None, str]]]:
    """Return how many steps a search takes, and what it says of each site."""
    x = torch.tensor([1.0, 4.0, 2.0, 3.0, 6.0, 5.0])
    torch._dynamo.reset()
    bcmend.patch(_search)
    before = budget.now()
    try:
        found = torch.compile(_search, backend="eager")(x)
        sites = [(each.refusal, each.detail) for each in bcmend.report(_search).sites]
    finally:
        bcmend.unpatch(_search)
    torch.testing.assert_close(found, _search(x))
    return budget.now() - before, sites


@pytest.mark.usefixtures("dynamo_begun_anew")
def test_a_search_ends_at_the_same_place_however_busy_the_machine_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(budget, "SEARCH", budget.SEARCH // 20)
    monkeypatch.setattr(budget, "BRANCHES", budget.BRANCHES // 20)
    _searched()  # what is found out once in a process
    alone = _searched()
    is_over = threading.Event()

    def compute() -> None:
        while not is_over.is_set():
            sum(range(1000))

    others = [threading.Thread(target=compute) for _ in range(2)]
    for each in others:
        each.start()
    try:
        beside = _searched()
    finally:
        is_over.set()
        for each in others:
            each.join()
    assert alone == beside and alone[0] > 0


def test_patience_is_that_of_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget._METER, "steps", 1000)
    with budget.patience(4):
        assert budget.now() == 250
    assert budget.now() == 1000


@pytest.mark.usefixtures("dynamo_begun_anew")
def test_instructions_and_operations_are_counted() -> None:
    def program(x: Tensor, count: int) -> Tensor:
        for _ in range(count):
            x = x + 1
        return x if x.sum() > 0 else -x

    counted = []
    for count in (2, 4, 6):
        torch._dynamo.reset()
        before = budget.now()
        torch.compile(bcmend.patch(program), backend="eager")(torch.ones(2), count)
        counted.append(budget.now() - before)
    first, second, third = counted
    assert second - first == third - second > 2 * budget.OPERATION
