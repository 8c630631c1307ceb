"""Which graphs may run twice: the note that a trace leaves for the boundary."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import bcmend
from bcmend.install import patched_functions
from bcmend.runtime import backoff


def _repeatable(program: Callable[[Tensor], Tensor]) -> bool | None:
    torch._dynamo.reset()
    bcmend.compile(program, backend="eager", fullgraph=True)(torch.ones(3))
    (patched,) = patched_functions([program])  # type: ignore[list-item]
    state = backoff.state_of(patched.mended.body)
    bcmend.unpatch()
    return state.repeatable


def test_a_pure_graph_may() -> None:
    def program(x: Tensor) -> Tensor:
        print(end="")
        return functional.dropout(x, 0.5, training=False) + 1

    assert _repeatable(program) is True


def test_a_graph_without_records_needs_no_second_run() -> None:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = x + 1
        return x

    assert _repeatable(program) is None


def _changes_its_argument(x: Tensor) -> Tensor:
    print(end="")
    x.add_(1)
    return x * 2


def _draws_a_mask(x: Tensor) -> Tensor:
    print(end="")
    return functional.dropout(x, 0.5, training=True)


def _draws_numbers(x: Tensor) -> Tensor:
    print(end="")
    return x + torch.rand(3)


@pytest.mark.parametrize("program", [_changes_its_argument, _draws_a_mask, _draws_numbers])
def test_a_graph_that_changes_or_draws_may_not(program: Callable[[Tensor], Tensor]) -> None:
    assert _repeatable(program) is False
