"""Which graphs may run twice: the note that a trace leaves for the boundary."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import bcmend
from bcmend.patching.table import TABLE
from bcmend.tracing.sites import body_states
from tests.equivalence import assert_equivalent, call


def _repeatable(program: Callable[[Tensor], Tensor]) -> bool | None:
    torch._dynamo.reset()
    bcmend.compile(program, backend="eager", fullgraph=True)(torch.ones(3))
    patched = TABLE.of(program)  # type: ignore[arg-type]
    assert patched is not None
    state = body_states.state_of(patched.mended.body)
    bcmend.unpatch()
    return state.repeatable


def test_a_pure_graph_may() -> None:
    def program(x: Tensor) -> Tensor:
        print(end="")
        return functional.dropout(x, 0.5, training=False) + 1

    assert _repeatable(program) is True


def test_a_graph_that_is_whole_because_it_was_mended_may() -> None:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = x + 1
        return x

    assert _repeatable(program) is True


def test_what_fails_in_a_graph_that_was_mended_names_its_own_line() -> None:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = x + 1
        return x[(x < 0).long() * 7]

    values = [1.0, -1.0, 2.0]
    assert_equivalent(lambda: program, lambda: [call(torch.full((3,), each)) for each in values])


def _changes_its_argument(x: Tensor) -> Tensor:
    print(end="")
    x.add_(1)
    return x * 2


def _changes_it_under_another_name(x: Tensor) -> Tensor:
    print(end="")
    x.data.add_(1)
    return x * 2


def _fills_a_row(x: Tensor) -> Tensor:
    print(end="")
    x[0] = 3
    return x * 2


def _writes_to_it(x: Tensor) -> Tensor:
    print(end="")
    torch.exp(x.detach(), out=x.data)
    return x * 2


@pytest.mark.parametrize(
    "program",
    [_changes_its_argument, _changes_it_under_another_name, _fills_a_row, _writes_to_it],
)
def test_a_graph_that_changes_its_argument_may_not(program: Callable[[Tensor], Tensor]) -> None:
    assert _repeatable(program) is False


def _fails_after(draw: Callable[[Tensor], Tensor]) -> Callable[[], Callable[[Tensor], Tensor]]:
    def make() -> Callable[[Tensor], Tensor]:
        def program(x: Tensor) -> Tensor:
            y = draw(x)
            print("drawn", y.shape)
            return y[(x < 0).long() * 7] + torch.rand(3)

        return program

    return make


@pytest.mark.parametrize(
    "draw",
    [
        functional.dropout,
        lambda x: x + torch.rand(3),
        lambda x: x * random.randint(1, 6) + random.uniform(0, 1),
    ],
)
def test_a_second_run_draws_the_same_numbers(draw: Callable[[Tensor], Tensor]) -> None:
    values = [1.0, -1.0, 2.0]
    assert_equivalent(_fails_after(draw), lambda: [call(torch.full((3,), each)) for each in values])


def test_an_arm_that_fails_behind_a_check_writes_nothing() -> None:
    def make() -> Callable[[Tensor], Tensor]:
        def program(x: Tensor) -> Tensor:
            if x[0] > 0:
                raise ValueError("positive")
            if x[1] > 0:
                x = x[x.long()] * 2
            return x

        return program

    values = ([1.0, 7.0], [-1.0, 1.0], [-1.0, 7.0])
    assert_equivalent(make, lambda: [call(torch.tensor(each)) for each in values])
