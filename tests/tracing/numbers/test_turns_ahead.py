"""What each turn of a loop asks of the data is computed in front, of all turns together."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounter

import bcmend
from bcmend.tracing.sites.live_state import TURNS_AT_MOST
from tests.equivalence import Call, assert_equivalent, call, fresh

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")

Program = Callable[..., Any]

ROWS = ([1.0, 2.0, 3.0, 4.0], [-1.0, 2.0, -3.0, 4.0], [-1.0] * 4, [-1.0, 2.0, -3.0, 4.0])


def _vectors(rows: Sequence[Sequence[float]] = ROWS) -> Callable[[], list[Call]]:
    return lambda: [call(torch.tensor(each)) for each in rows]


def _of_a_generator(x: Tensor) -> Any:
    kept = dict((at, at + 1) for at, each in enumerate(x) if each < 0)  # noqa: C402
    return (x * 2 if kept else x + 1), list(kept)


def _negative(x: Tensor) -> Iterator[int]:
    return (at for at, each in enumerate(x) if each < 0)


def _handed_out_by_a_function(x: Tensor) -> Any:
    kept = list(_negative(x))
    return (x * 2 if kept else x + 1), kept


def _steps(x: Tensor) -> Iterator[Tensor]:
    for each in x:
        if each < 0:
            yield each * 2
        yield each


def _of_a_function_that_yields(x: Tensor) -> list[Tensor]:
    return list(_steps(x))


def _left_by_size(x: Tensor) -> Tensor:
    kept = []
    while x.shape[0] > 0:
        kept.append(x[0])
        x = x[(x - x[0]).abs() > 1.5]
    return torch.stack(kept)


@pytest.mark.parametrize(
    "program",
    [_of_a_generator, _handed_out_by_a_function, _of_a_function_that_yields, _left_by_size],
)
@pytest.mark.parametrize("fullgraph", [True, False])
def test_each_outcome_is_a_graph(program: Program, fullgraph: bool) -> None:
    make = lambda: fresh(program)  # noqa: E731
    calls = _vectors(ROWS if fullgraph else [row[:3] for row in ROWS])
    assert_equivalent(make, calls, graphs=3, recompiles=None, fullgraph=fullgraph, may_copy=True)


def test_a_trace_more_serves_all_turns() -> None:
    program = fresh(_of_a_generator)
    bcmend.patch(program)
    torch.compile(program, backend="eager", fullgraph=True)(torch.arange(24.0) - 9)
    traces = json.loads(bcmend.why(program).to_json())["traces"]
    assert 3 <= len(traces) <= 5


def test_more_turns_than_are_computed_are_left_to_eager_execution() -> None:
    count = TURNS_AT_MOST + 2
    calls = lambda: [call(torch.arange(count) - each) for each in (9.0, 0.0)]  # noqa: E731
    make = lambda: fresh(_handed_out_by_a_function)  # noqa: E731
    assert_equivalent(make, calls, graphs=None, recompiles=None, fullgraph=False)


def test_many_turns_are_not_compiled_for_each_outcome_unless_one_graph_is_asked_for() -> None:
    program = fresh(_of_a_generator)
    bcmend.patch(program)
    counter = CompileCounter()
    compiled = torch.compile(program, backend=counter)
    for row in torch.randn(6, 12, generator=torch.Generator().manual_seed(0)):
        assert str(compiled(row)) == str(_of_a_generator(row))
    assert counter.frame_count == 0


def test_a_filter_of_what_requires_gradients_is_left_to_eager_execution() -> None:
    calls = lambda: [call(torch.tensor(each, requires_grad=True)) for each in ROWS]  # noqa: E731
    make = lambda: fresh(_of_a_function_that_yields)  # noqa: E731
    assert_equivalent(make, calls, graphs=None, recompiles=None, fullgraph=False, training=True)


def test_gradients_flow_through_what_is_kept() -> None:
    def program(x: Tensor, kept: Tensor) -> Tensor:
        return sum((row * 2 for row, keep in zip(x, kept, strict=True) if keep), x[0])

    def calls() -> list[Call]:
        flags = ([True, False, True], [False] * 3, [True, False, True])
        x = [torch.ones(3, 2, requires_grad=True) for _ in flags]
        return [call(*each) for each in zip(x, map(torch.tensor, flags), strict=True)]

    assert_equivalent(lambda: fresh(program), calls, graphs=2, recompiles=1, training=True)


def test_a_check_in_an_arm_stays_one() -> None:
    def program(x: Tensor) -> Any:
        found = []
        for each in x:
            if each < 0:
                part = each[None]
            else:
                if each > 5:
                    raise ValueError(f"too large: {each}")
                part = torch.stack([each, each])
            found.append(part)
        return found

    rows = (*ROWS, [1.0, 2.0, 3.0, 9.0], [-1.0, 2.0, -3.0, 9.0])
    calls = _vectors(rows)
    assert_equivalent(lambda: fresh(program), calls, graphs=None, recompiles=None, may_copy=True)


def _drawn(x: Tensor) -> Any:
    kept = x[x > 0]
    return kept * 2, random.sample(range(x.shape[0] * 3), kept.numel())


def _drawn_by_a_size(x: Tensor) -> Tensor:
    return x * random.randint(0, x.shape[0])


@pytest.mark.parametrize("program", [_drawn, _drawn_by_a_size])
def test_numbers_that_vary_are_arguments_of_draws(program: Program) -> None:
    rows = ([1.0, 2.0, 3.0], [1.0, -2.0, 3.0], [1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 2.0, 3.0])
    make = lambda: fresh(program)  # noqa: E731
    assert_equivalent(make, _vectors(rows), graphs=None, recompiles=None)
