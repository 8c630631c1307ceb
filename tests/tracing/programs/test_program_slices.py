"""Programs that are run in front of a graph, and what becomes of a step that fails."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch

from bcmend.tracing.programs.program_slices import (
    Constant,
    Input,
    Joined,
    Operation,
    ProgramSlice,
    Result,
    Scope,
)


def _numbers(target: Any, expression: str) -> list[Any]:
    """Return what a program gives: a function of an input and 4, and the truth of that."""
    four = Constant(int, "4", 4)
    steps = (Input(expression, torch.Tensor), Operation(target, (Result(0), four), {}))
    program = ProgramSlice(steps, 1, False, ())
    found: list[Any] = []
    scope = Scope({"x": torch.tensor(3)}, {})
    Joined([program, program.truth()]).numbers(scope, found)
    return found


@pytest.mark.parametrize(
    ("target", "expected"), [(operator.gt, False), (operator.eq, False), (operator.ne, True)]
)
def test_a_truth_in_front_of_a_graph(target: Any, expected: bool) -> None:
    assert _numbers(target, "L['x']") == [expected, expected]


@pytest.mark.parametrize("target", [operator.gt, operator.eq, operator.ne])
def test_nothing_is_known_of_an_input_that_is_not_there(target: Any) -> None:
    """``bool`` and ``==`` take any object for a value."""
    assert _numbers(target, "L['y']") == [None, None]
