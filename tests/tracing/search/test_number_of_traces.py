"""How many traces a search makes of programs whose assumptions fail one after the other."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from bcmend.tracing.entry import branch_mending
from bcmend.tracing.search import budget, log
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.search.log import Trace
from bcmend.tracing.sites import nesting_limits
from bcmend.tracing.sites.phi import left_apart_beside, note_left_apart
from bcmend.tracing.sites.site_table import LiveSite


def _traces(program: Callable[..., Any], *arguments: Any) -> list[Trace]:
    """Compile a program in one graph, compare it with eager execution; return its traces."""
    assert isinstance(program, FunctionType)
    expected = program(*arguments)
    bcmend.patch(program)
    try:
        found = torch.compile(program, backend="eager", fullgraph=True)(*arguments)
        traces = log.traces([program.__code__])
    finally:
        bcmend.unpatch(program)
        torch._dynamo.reset()
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    return traces


def _claims(traces: list[Trace]) -> list[Claim]:
    return [each.claim for trace in traces for each in trace.findings]


def _require_sizes(height: int, width: int, depth: int) -> None:
    if height < 0 or width < 0 or depth < 0:
        raise ValueError("negative")


def _program(x: Tensor) -> Tensor:
    height, width, depth = (int(each) for each in x.sum(0))
    _require_sizes(height, width, depth)
    return x * 2


def test_numbers_that_are_compared_in_one_line_are_decided_by_one_trace() -> None:
    traces = _traces(_program, torch.ones(2, 3))
    deciding = [each for each in traces if Claim.DECIDED in _claims([each])]
    assert len(deciding) == 1
    assert _claims(deciding).count(Claim.DECIDED) == 3


def test_the_truth_of_what_both_sides_leave_is_known_in_the_same_trace() -> None:
    assert Claim.DROPPED not in _claims(_traces(_program, torch.ones(2, 3)))


def _first(x: Tensor, y: Tensor) -> Tensor:
    if x.sum() > 0:
        factor, part = 2, x
    else:
        factor, part = 3, y[:1]
    return x * factor + part.sum()


def _second(x: Tensor, y: Tensor) -> Tensor:
    if x.sum() > 1:
        factor, part = 4, x
    else:
        factor, part = 5, y[:1]
    return x * factor - part.sum()


def _third(x: Tensor, y: Tensor) -> Tensor:
    if x.sum() > 2:
        factor, part = 6, x
    else:
        factor, part = 7, y[:1]
    return x * factor + part.mean()


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_branch_whose_values_are_read_takes_one_more_trace(number: int) -> None:
    helpers = [_first, _second, _third][:number]

    def program(x: Tensor, y: Tensor) -> Tensor:
        for helper in helpers:
            x = helper(x, y)
        return x

    traces = _traces(program, torch.ones(3), torch.ones(3))
    assert _claims(traces).count(Claim.READ_APART) == number
    assert len(traces) <= number + 2  # the first, and the one that is captured


def _truncated(x: Tensor) -> Tensor:
    height, width, depth = int(x[0].item()), int(x[1].item()), int(x[2].item())
    return x * len("x" * height) + len("x" * width) + len("x" * depth)


def _truncated_apart(x: Tensor) -> Tensor:
    height = int(x[0].item())
    width = x[1].item()
    return x * len("x" * height) + width


def test_sizes_that_one_line_reads_are_had_in_front_together() -> None:
    claims = [_claims([each]) for each in _traces(_truncated, torch.tensor([1.0, 2.0, 3.0]))]
    ahead = [each.count(Claim.NUMBER_LATE) for each in claims]
    assert list(filter(None, ahead)) == [3]


def test_a_fraction_of_another_line_stays_in_the_graph() -> None:
    claims = _claims(_traces(_truncated_apart, torch.tensor([1.0, 2.5, 3.0])))
    assert claims.count(Claim.NUMBER_LATE) == 1


def _compares_sizes(x: Tensor) -> Tensor:
    height, width = int(x[0].item()), int(x[1].item())
    parts = [x] if height == 0 or width == 0 else [x, x + height]
    return parts[-1] * len(parts)


def test_what_numbers_decide_is_had_in_front_once_half_of_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = torch.tensor([1.0, 2.0])
    assert Claim.NUMBER_LATE not in _claims(_traces(_compares_sizes, x))
    monkeypatch.setattr(budget, "is_half_over", lambda: True)
    claims = _claims(_traces(_compares_sizes, x))
    assert Claim.NUMBER_LATE in claims
    assert Claim.READ_APART not in claims


class _Scaled:
    def __init__(self, by: int) -> None:
        self.by, self.shown = by, ""

    def __call__(self, x: Tensor) -> Tensor:
        return x * self.by


class _Reversed(_Scaled):
    def __init__(self, other: _Scaled) -> None:
        super().__init__(-other.by)
        self.other = other

    def __call__(self, x: Tensor) -> Tensor:
        return -self.other(-x)


def _forwards(times: Tensor, f: _Scaled) -> tuple[Tensor, _Scaled]:
    return (-times, _Reversed(f)) if times[0] > times[-1] else (times, f)


def _shown(times: Tensor, f: _Scaled) -> tuple[Tensor, _Scaled]:
    times, f = _forwards(times, f)
    f.shown = str(f.by)
    return times, f


def _solved(times: Tensor) -> Tensor:
    times, f = _shown(times, _Scaled(2))
    y = times * len(f.shown)
    for at in (0, 1):
        y = f(y) + times[at]
    return y


def test_a_condition_that_splits_many_places_is_had_in_front_once_much_was_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = torch.tensor([2.0, 1.0, 0.0])
    monkeypatch.setattr(budget, "MANY", 100)
    claims = _claims(_traces(_solved, times))
    assert Claim.NUMBER_LATE not in claims and claims.count(Claim.WHOLE_CODE) >= 3
    monkeypatch.setattr(budget, "MANY", 1)
    assert Claim.NUMBER_LATE in _claims(_traces(_solved, times))


def _counts_items(x: Tensor) -> Tensor:
    parts = [x] if x.sum() > 0 else [x, x + 1]
    return parts[-1] * len(parts)


def test_a_condition_is_had_in_front_although_the_search_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(budget, "is_over", lambda: True)
    monkeypatch.setattr(budget, "is_long_over", lambda: False)
    assert _claims(_traces(_counts_items, torch.ones(2)))[-1] is Claim.NUMBER_LATE


def test_what_one_condition_has_left_is_given_up_in_one_trace_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output: Any = SimpleNamespace()
    sites = [LiveSite(each, "branch", _counts_items.__code__) for each in "abc"]
    found = [Finding(Claim.READ_APART, each, 0) for each in sites]
    for each, node in zip(found, ("one", "other", "one"), strict=True):
        condition: Any = SimpleNamespace(as_proxy=lambda node=node: SimpleNamespace(node=node))
        note_left_apart(output, each, condition)
    assert left_apart_beside(output, found[0]) == []
    monkeypatch.setattr(budget, "is_over", lambda: True)
    assert left_apart_beside(output, found[0]) == [found[0], found[2]]


def _require(is_met: Any) -> None:
    if not is_met:
        raise ValueError("not met")


def _tested_by_a_call(x: Tensor) -> Tensor:
    _require((x > -2).all().item() and (x < 4).all().item())
    return x * 2


def test_a_jump_on_numbers_that_arms_have_left_becomes_a_site_at_once() -> None:
    claims = _claims(_traces(_tested_by_a_call, torch.ones(2, 3)))
    assert Claim.DECIDED in claims
    assert not {Claim.WHOLE_CODE, Claim.DROPPED, Claim.NUMBER_LATE} & set(claims)


_STEPS: list[Callable[[Tensor], Tensor]] = [torch.sin, torch.exp]


def _steps_in_an_order(x: Tensor, order: Tensor) -> Tensor:
    y = x
    for place in order.tolist():
        if (x > place).any():
            y = _STEPS[place](y)
    return y.clone() if y is x else y


def test_an_identity_behind_a_split_is_a_site_from_then_on() -> None:
    traces = _traces(_steps_in_an_order, torch.ones(2, 3), torch.tensor([1, 0]))
    deciding = [each for each in traces if Claim.DECIDED in _claims([each])]
    assert [Claim.WHOLE_CODE in _claims([each]) for each in deciding] == [True]


def _suppressed(x: Tensor) -> Tensor:
    left, kept = x[x > 0], []
    while left.shape[0] > 0:
        kept.append(left[0])
        left = left[1:][left[1:] < left[0]]
    return torch.stack(kept)


def test_a_loop_over_a_size_without_an_end_is_given_up_at_its_third_turn() -> None:
    traces = _traces(_suppressed, torch.tensor([3.0, -1.0, 2.0, 2.5] * 10))
    given_up = [
        each
        for trace in traces
        for each in trace.findings
        if each.slug == "too-deep" and each.claim is Claim.MENDED_NOW
    ]
    assert len(given_up) == 1 and "more than" in given_up[0].evidence


#: A condition that a weight decides is not computed in front of the graph.
_WEIGHT = torch.nn.Parameter(torch.ones(3))


@torch.no_grad()
def _traces_without_gradients(program: Callable[..., Any], *arguments: Any) -> list[Trace]:
    return _traces(program, *arguments)


def _kept_until(x: Tensor, limit: Tensor) -> Tensor:
    kept, total = [], x[0]
    for place in range(4):
        total = total + x[place].tanh() * _WEIGHT
        if total.sum() > limit:
            break
        kept.append(total * place)
    return torch.cat(kept) if kept else total


def test_a_list_of_a_loop_that_is_left_early_takes_one_trace_more() -> None:
    traces = _traces_without_gradients(_kept_until, torch.ones(4, 3), torch.tensor(-9.0))
    assert [set(_claims([each])) for each in traces] == [
        {Claim.CAPTURED},
        {Claim.ADDED_UP, Claim.READ_APART, Claim.NARROW},
        set(),
    ]
    for limit in (5.0, 9.0):
        traces = _traces_without_gradients(_kept_until, torch.ones(4, 3), torch.tensor(limit))
        assert len(traces) <= 3


def _grown(x: Tensor, limit: Tensor) -> Tensor:
    kept, total, weights = [], x[0], [x[0] + 1, x[1] * 2, x[2] - 3] * 3
    for place in range(9):
        total = total + x[place].tanh() * weights[place] * _WEIGHT
        if total.sum() > limit:
            break
        kept.append(total)
    return torch.stack(kept).sum(0) if kept else total


def test_a_turn_that_grows_a_list_is_not_split_for_an_operator_that_it_cannot_be_in() -> None:
    traces = _traces_without_gradients(_grown, torch.ones(9, 3), torch.tensor(5.0))
    assert Claim.WHOLE_CODE not in _claims(traces)
    assert len(traces) == 2


def _returned_early(x: Tensor) -> tuple[Tensor, Tensor | None]:
    if x.sum() > 0:
        return x * 2, None
    if x.mean() < -3:
        return x[:1], x + 1
    return x, x - 1


@pytest.mark.parametrize("value", [1.0, -1.0, -4.0])
def test_what_is_returned_in_two_forms_is_stored_by_the_first_trace(value: float) -> None:
    traces = _traces(_returned_early, torch.full((3,), value))
    assert _claims(traces) == [Claim.CAPTURED]
    assert len(traces) == 2


def _read_at_once(x: Tensor) -> Tensor:
    kept = [x]
    if x.sum() > 0:
        kept.append(x * 2)
    first = kept[-1] - 1
    return first if x.mean() < 9 else first + 1


def test_a_list_that_is_looked_at_gets_a_wider_branch_at_once() -> None:
    found = [set(_claims([each])) for each in _traces(_read_at_once, torch.ones(3))]
    together = {Claim.ADDED_UP, Claim.READ_APART, Claim.NARROW}
    assert [each for each in found if each & together] == [together]


def test_a_form_is_tried_once_in_each_turn_of_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[tuple[Any, tuple[str, int, int]]] = []
    inner = branch_mending._mend

    def counted(tx: Any, target: Any, site: Any, form: int, *others: Any) -> Any:
        outcome = inner(tx, target, site, form, *others)
        # But for turns that end at the jump.
        tried.append((tx.output, (site.key, nesting_limits.times(tx, site), form)))
        return outcome

    monkeypatch.setattr(branch_mending, "_mend", counted)
    traces = _traces_without_gradients(_kept_until, torch.ones(4, 3), torch.tensor(1.0))
    assert not traces[-1].findings
    last = [each for output, each in tried if output is tried[-1][0]]
    assert len(last) == len(set(last)) >= 4


def _several_returned(x: Tensor) -> tuple[Any, ...]:
    one = x if x.sum() > 0 else x[:1]
    other = x[1:] if x.mean() > 9 else None
    last = (x * 2, None) if x.max() > 1 else (one, other)
    return one, other, last


@pytest.mark.parametrize("value", [1.0, 2.0, 10.0, -1.0])
def test_all_that_is_returned_in_two_forms_is_stored_from_one_trace_on(value: float) -> None:
    traces = _traces(_several_returned, torch.full((3,), value))
    dropped = [_claims([each]).count(Claim.DROPPED) for each in traces]
    assert list(filter(None, dropped)) == [3]


def _untraceable(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x * len(repr(sys._current_frames()))
    return x - 1


def _calls_it(x: Tensor) -> Tensor:
    return _untraceable(x)


def _calls_that(x: Tensor) -> Tensor:
    return _calls_it(x)


def _calls_all(x: Tensor) -> Tensor:
    return _calls_that(x)


def test_calls_around_one_that_is_not_captured_are_noted_by_one_trace() -> None:
    bcmend.patch(_calls_all)
    try:
        torch.compile(_calls_all, backend="eager")(torch.ones(3))
        traces = log.traces([_calls_all.__code__])
    finally:
        bcmend.unpatch(_calls_all)
        torch._dynamo.reset()
    noting = [each for each in traces if Claim.WRITES_NOTHING in _claims([each])]
    assert len(noting) == 1
    assert _claims(noting).count(Claim.WRITES_NOTHING) == 3
