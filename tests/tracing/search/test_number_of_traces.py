"""How many traces a search makes of programs whose assumptions fail one after the other."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from bcmend.tracing.search import log
from bcmend.tracing.search.assumptions import Claim
from bcmend.tracing.search.log import Trace


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
