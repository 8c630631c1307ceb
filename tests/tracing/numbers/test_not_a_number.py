"""Floating numbers out of tensors that are NaN or infinite, in conditions behind each other.

With NaN neither of ``x < 1`` and ``x >= 1`` holds, so that what a condition is not says little.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.equivalence import Call, assert_equivalent, call

_VALUES = [
    [1.0, 2.0],
    [0.5, 0.25],
    [1.0, 0.5],
    [0.0, 0.0],
    [float("nan"), 0.0],
    [float("inf"), 0.0],
    [-1.0, -1.0],
]


def _calls() -> list[Call]:
    return [call(torch.tensor(each)) for each in _VALUES]


def _neither_below_nor_above(x: Tensor) -> Any:
    total = x.sum().item()
    if total < 1:
        return x - 1, 0
    if total >= 1:
        return x + 1, 1
    return x + 2, 2


def _not_above(x: Tensor) -> Any:
    total = x.sum().item()
    if not total > 1:
        if total <= 1:
            return x - 1, total
        return x + 5, total
    return x * 2, total


def _by_a_truth(x: Tensor) -> Any:
    total, mean = x.sum().item(), x.mean().item()
    is_less = total < mean
    if not is_less and total >= mean:
        return x - 1
    return x + 1 if is_less else x + 2


def _behind_a_check(x: Tensor) -> Any:
    total = x.sum().item()
    if total > 2:
        raise ValueError("large")
    if total <= 2:
        return x * 2
    return x + 1


def _between_bounds(x: Tensor) -> Any:
    least, greatest = 0.0, 1.0
    total = x.sum().item()
    if least <= total <= greatest:
        return x - 1
    if total > greatest:
        return x + 1
    return x + 2 if total < least else x + 3


def _in_a_range_of_integers(x: Tensor) -> Any:
    share = x.amax().item()
    if not 0 < share <= 1:
        raise ValueError(f"{share} is no share")
    return x * share if share < 1 else x + 1


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize(
    "backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "program",
    [
        _in_a_range_of_integers,
        _neither_below_nor_above,
        _not_above,
        _by_a_truth,
        _behind_a_check,
        _between_bounds,
    ],
)
def test_no_comparison_holds_with_nan(
    program: Callable[..., Any], backend: str, fullgraph: bool
) -> None:
    assert_equivalent(lambda: program, _calls, backend=backend, fullgraph=fullgraph)


def _converges(x: Tensor) -> Any:
    before, rises = float("inf"), 0
    for _ in range(3):
        loss = x.abs().mean().item()
        if abs(before - loss) < 1e-3:
            break
        if loss > before:
            rises += 1
        before = loss
        x = x * -1.5
    return x, rises


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize(
    "backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
)
def test_a_number_compared_with_infinity_before_others(backend: str, fullgraph: bool) -> None:
    """A condition on the distance to infinity says nothing to torch about other numbers."""
    assert_equivalent(lambda: _converges, _calls, backend=backend, fullgraph=fullgraph, graphs=None)


_FLOATS = [
    *_VALUES,
    [float("-inf"), 0.0],
    [float("inf"), float("-inf")],
    [-0.0, -0.0],
    [9.0, 9.0],
    [1e20, 1.0],
]


def _float_calls() -> list[Call]:
    return [call(torch.tensor(each)) for each in _FLOATS]


_CONDITIONS: dict[str, Callable[[float, float], Any]] = {
    "itself": lambda v, w: v == v,
    "not itself": lambda v, w: v != v,
    "difference": lambda v, w: v - v == 0,
    "difference as truth": lambda v, w: v - v,
    "no times": lambda v, w: v * 0 == 0,
    "quotient": lambda v, w: v / v == 1 if v else False,
    "zeroth power": lambda v, w: v**0 == 1,
    "square": lambda v, w: v * v >= 0,
    "difference of squares": lambda v, w: v**2 - v**2 == 0,
    "absolute": lambda v, w: abs(v) >= 0,
    "negative absolute": lambda v, w: -abs(v) <= 0,
    "more by one": lambda v, w: v + 1 > v,
    "there and back": lambda v, w: v + 0.1 - 0.1 == v,
    "twice less once": lambda v, w: v * 2 - v == v,
    "another there and back": lambda v, w: v - w + w == v,
    "nothing of another": lambda v, w: v * 0 + w == w,
    "either order": lambda v, w: v + w == w + v,
    "whole": lambda v, w: v // 1 == v,
    "below or not": lambda v, w: v < 1 or v >= 1,
    "below or not, joined": lambda v, w: (v < 1) | (v >= 1),
    "not above, joined": lambda v, w: (not v > 1) | (v > 2),
    "two truths": lambda v, w: (v < 1) == (v >= 1),
    "one of two": lambda v, w: (v > 1) ^ (v <= 1),
    "chained": lambda v, w: 0 <= v < 5,
    "greatest": lambda v, w: max(v, w) >= v,
    "least": lambda v, w: min(v, w, 0.0) <= 0,
    "sorted": lambda v, w: sorted([v, w])[0] <= w,
    "sum of a list": lambda v, w: sum([v, -v]) == 0,
    "test of a difference": lambda v, w: math.isnan(v - v),
    "test of a product": lambda v, w: math.isfinite(v * 0),
    "and": lambda v, w: v and v > 1,
    "or": lambda v, w: v or v - v,
}

#: Those whose value may be a number or a truth, and the order of numbers that the data decide.
_OF_TWO_TYPES = frozenset(["quotient", "sorted", "and", "or"])


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize(
    "backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", _CONDITIONS)
def test_conditions_that_hold_of_real_numbers(name: str, backend: str, fullgraph: bool) -> None:
    condition = _CONDITIONS[name]

    def program(x: Tensor) -> Any:
        total, mean = x.sum().item(), x.mean().item()
        if condition(total, mean):
            return x * 2, 1
        return x + 1, 0

    graphs = None if name in _OF_TWO_TYPES else 1
    assert_equivalent(
        lambda: program,
        _float_calls,
        backend=backend,
        fullgraph=fullgraph,
        graphs=graphs,
        recompiles=None if graphs is None else 0,
    )


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_number_that_is_no_number_is_in_no_tuple(backend: str, fullgraph: bool) -> None:
    def program(x: Tensor) -> Any:
        total = x.sum().item()
        return (x * 2, 1) if total in (1.0, 3.0) else (x + 1, 0)

    assert_equivalent(lambda: program, _float_calls, backend=backend, fullgraph=fullgraph)


_RESULTS: dict[str, Callable[[Tensor, float, float], Any]] = {
    "difference": lambda x, v, w: v - v,
    "no times": lambda x, v, w: v * 0,
    "no times a square": lambda x, v, w: v**2 * 0,
    "negative of none": lambda x, v, w: 0.0 - v,
    "sign": lambda x, v, w: math.copysign(1.0, 0.0 + v),
    "there and back": lambda x, v, w: v + 0.1 - 0.1,
    "truth of a difference": lambda x, v, w: v - v == 0,
    "truths": lambda x, v, w: ((v < 1) | (v >= 1), not v > 1, v == v, v + 1 > v),
    "text": lambda x, v, w: f"{v - v} {v * 0 + w}",
    "factor": lambda x, v, w: x * (v - v),
    "factor of squares": lambda x, v, w: x * (v**2 - v**2),
    "summand": lambda x, v, w: x + v * 0,
    "twice less once": lambda x, v, w: x * (v * 2 - v),
    "filled": lambda x, v, w: torch.full((2,), v - v),
    "compared": lambda x, v, w: torch.where(x > v - v, x, -x),
    "made": lambda x, v, w: torch.tensor([v * 0, w]),
    "truth as a factor": lambda x, v, w: x * (abs(v) >= 0),
}


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize(
    "backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", _RESULTS)
def test_results_that_are_others_of_real_numbers(name: str, backend: str, fullgraph: bool) -> None:
    compute = _RESULTS[name]

    def program(x: Tensor) -> Any:
        return x * 2, compute(x, x.sum().item(), x.mean().item())

    assert_equivalent(lambda: program, _float_calls, backend=backend, fullgraph=fullgraph)


def _where_another_holds(x: Tensor) -> Any:
    count, total, mean = (x > 0).sum().item(), x.sum().item(), x.mean().item()
    if count >= 0:  # of an integer, which says nothing of the others
        x = x + 1 if total * total >= 0 else x - 1
    if mean > 1:
        x = x * 3 if total * 0 + mean > 1 else x
    if total > 1:
        x = x - 5 if total * 2 > total else x
        x = x + 3 if total > 0 else x
    return x


def _in_places_without_branches(x: Tensor) -> Any:
    total = x.sum().item()
    kept = [each for each in (total, 1.0) if each * each >= 0]
    found = any(each * each >= 0 for each in (total, total - 1))
    return x, kept, found, all(each == each for each in (total, 1.0))


def _asserts(x: Tensor) -> Any:
    total = x.sum().item()
    assert total * total >= 0, "no number"
    return x + 1, total


def _in_a_loop(x: Tensor) -> Any:
    total, turns = x.sum().item(), 0
    while not total > 5 and turns < 6:
        total = total * 2 + 1 - total
        turns += 1
    return x * total, turns


def _scaled(x: Tensor) -> Any:
    one, other = x.tolist()
    least, greatest = min(one, other), max(one, other)
    if greatest - least == 0:
        return x, 1
    return (x - least) / (greatest - least), 2


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize(
    "backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "program",
    [_where_another_holds, _in_places_without_branches, _asserts, _in_a_loop, _scaled],
)
def test_nothing_is_concluded_of_what_is_computed(
    program: Callable[..., Any], backend: str, fullgraph: bool
) -> None:
    """A condition that holds, and the ranges of numbers, say nothing of results that may be NaN."""
    assert_equivalent(
        lambda: program, _float_calls, backend=backend, fullgraph=fullgraph, graphs=None
    )


class _SkipsWhatIsNoNumber(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Any:
        y = self.linear(x)
        size = y.detach().sum().item()
        if size - size != 0:
            return torch.nan_to_num(y) * 0
        return y * (1 + size * 0)


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_a_step_of_training_without_numbers(backend: str, fullgraph: bool) -> None:
    def build() -> torch.nn.Module:
        torch.manual_seed(0)
        return _SkipsWhatIsNoNumber()

    assert_equivalent(build, _calls, backend=backend, fullgraph=fullgraph, training=True)


def _drawn_once(x: Tensor) -> Any:
    is_told = random.random() < 0.5
    for turn in range(3):
        if is_told:
            x = x + turn
            continue
        x = x * 2
        if x.sum() > 4:
            break
    return x


def _asked_twice(x: Tensor) -> Any:
    value = x.sum().item()
    is_small = value < 1
    if is_small:
        return x, 0
    x = x + 1 if x.mean() > 2 else x - 1
    return (x, 1) if is_small else (x, 2)


@pytest.mark.parametrize("program", [_drawn_once, _asked_twice])
def test_a_truth_that_was_asked_is_the_same_again(program: Any) -> None:
    assert_equivalent(lambda: program, _float_calls)


@pytest.mark.parametrize("fullgraph", [True, False])
def test_integers_of_floats_stay_integers(fullgraph: bool) -> None:
    def program(x: Tensor) -> Any:
        value = x.clamp(-9, 9).nan_to_num().sum().item()
        whole = int(value)
        return 0 + whole, whole * 1, whole - whole, whole + 0 * whole, x * (0 + whole)

    assert_equivalent(lambda: program, _float_calls, fullgraph=fullgraph)


def _between_two_places(x: Tensor) -> Any:
    place = x.sum().item()
    whole = int(place)
    part = place - whole
    return x[whole % 2] * (1 - part) + x[(whole + 1) % 2] * part, part


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_nan_is_no_integer_of_what_is_computed(backend: str, fullgraph: bool) -> None:
    """Inductor makes integers as C does, and so an integer of NaN."""
    assert_equivalent(
        lambda: _between_two_places,
        _calls,
        backend=backend,
        fullgraph=fullgraph,
        graphs=None,
        recompiles=None,
    )
