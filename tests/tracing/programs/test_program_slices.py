"""Programs that are run in front of a graph, and what becomes of a step that fails."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch

from bcmend.tracing.programs.program_slices import (
    Constant,
    Input,
    Operation,
    ProgramSlice,
    Result,
)
from bcmend.tracing.programs.straight_code import Joined


def _run(*slices: ProgramSlice, **local: Any) -> list[Any]:
    found: list[Any] = []
    Joined(slices).numbers(local, {}, found)
    return found


def _numbers(target: Any, expression: str) -> list[Any]:
    """Return what a program gives: a function of an input and 4, and the truth of that."""
    steps = (
        Input(expression, torch.Tensor),
        Operation(target, (Result(0), Constant.of(4)), {}),
    )
    program = ProgramSlice(steps, 1, False, ())
    return _run(program, program.truth(), x=torch.tensor(3))


@pytest.mark.parametrize(
    ("target", "expected"), [(operator.gt, False), (operator.eq, False), (operator.ne, True)]
)
def test_a_truth_in_front_of_a_graph(target: Any, expected: bool) -> None:
    assert _numbers(target, "L['x']") == [expected, expected]


@pytest.mark.parametrize("target", [operator.gt, operator.eq, operator.ne])
def test_nothing_is_known_of_an_input_that_is_not_there(target: Any) -> None:
    """``bool`` and ``==`` take any object for a value."""
    assert _numbers(target, "L['y']") == [None, None]


def _of_one_input(*operations: Operation) -> ProgramSlice:
    steps = (Input("L['x']", torch.Tensor), *operations)
    return ProgramSlice(steps, len(operations), False, ())


def test_arguments_in_lists_slices_and_keywords() -> None:
    joined = Operation(torch.cat, ([Result(0), Result(0)],), {"dim": Constant.of(0)})
    part = slice(Constant.of(1), Constant.of(None), Constant.of(2))
    program = _of_one_input(joined, Operation(operator.getitem, (Result(1), part), {}))
    x = torch.arange(3)
    assert _run(program, x=x) == [tuple(torch.cat([x, x])[1::2].tolist())]


def test_a_method_is_called_of_its_first_argument() -> None:
    program = _of_one_input(Operation("sum", (Result(0),), {"dim": Constant.of(0)}))
    assert _run(program, x=torch.tensor([3, 4])) == [7]


def test_a_step_that_fails_leaves_what_does_not_need_it() -> None:
    good = _of_one_input(Operation(torch.sum, (Result(0),), {}))
    bad = _of_one_input(Operation(operator.getitem, (Result(0), Constant.of(9)), {}))
    assert _run(good, bad, bad.truth(), good.truth(), x=torch.tensor([1])) == [1, None, None, True]


def test_what_two_programs_do_is_done_once_unless_it_writes() -> None:
    calls: list[int] = []

    def counted(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x + 1

    program = _of_one_input(Operation(counted, (Result(0),), {}))
    assert _run(program, program.truth(), x=torch.tensor(1)) == [2, True]
    assert len(calls) == 1
    writing = ProgramSlice(program.steps, program.place, True, program.apart)
    assert _run(writing, writing, x=torch.tensor(1)) == [2, 2]
    assert len(calls) == 3


def test_nothing_is_computed_of_a_large_tensor() -> None:
    program = _of_one_input(Operation(torch.sum, (Result(0),), {}))
    assert _run(program, x=torch.ones(1).expand(2**23)) == [None]


@pytest.mark.parametrize("shares", [False, True])
def test_nothing_is_known_where_inputs_share_the_memory_of_one_that_was_written(
    shares: bool,
) -> None:
    steps = (Input("L['x']", torch.Tensor), Input("L['y']", torch.Tensor))
    program = ProgramSlice(steps, 0, False, (((0,), (1,)),))
    x = torch.tensor([1, 2])
    y = x[1:] if shares else torch.tensor([2])
    assert _run(program, x=x, y=y) == [None if shares else (1, 2)]
