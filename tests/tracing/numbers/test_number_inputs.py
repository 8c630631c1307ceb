"""Floats that differ from call to call, and that an arm reads first; integers that calls count."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter

import bcmend
from tests.equivalence import assert_equivalent, call

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


class State:
    """Holds a number that is no part of a module, of which Dynamo makes an input."""

    def __init__(self) -> None:
        self.rate = 0.5


def decaying(is_read_later: bool) -> Any:
    state = State()

    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            state.rate = state.rate * 0.75
        return x * state.rate if is_read_later else x + 1

    return program


def _inputs() -> Any:
    return [call(torch.full((2,), side)) for side in (1.0, 2.0, -1.0, 3.0, -2.0)]


@pytest.mark.parametrize("is_read_later", [False, True])
def test_the_number_is_taken_in_the_main_graph(is_read_later: bool) -> None:
    assert_equivalent(lambda: decaying(is_read_later), _inputs, graphs=2, recompiles=1)


@pytest.mark.parametrize("is_read_later", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_the_number_with_a_back_end_that_has_a_guard_on_it(
    is_read_later: bool, training: bool
) -> None:
    assert_equivalent(
        lambda: decaying(is_read_later),
        _inputs,
        backend="aot_eager",
        training=training,
        graphs=None,
        recompiles=None,
    )


# Counters


class _Steps(nn.Module):
    """Counts its calls, itself and in an object that it holds."""

    def __init__(self, is_read: bool = True) -> None:
        super().__init__()
        self.steps = 0
        self.state = State()
        self.state.rate = 2  # type: ignore[assignment]
        self.is_read = is_read

    def forward(self, x: Tensor) -> Any:
        self.steps += 1
        self.state.rate = self.state.rate * 2
        y = x * 2 if x.sum() > 0 else x - 1
        return (y * self.steps, self.state.rate) if self.is_read else y


def _many() -> Any:
    return [call(torch.full((2,), (-1.0) ** at * at)) for at in range(12)]


@pytest.mark.parametrize("is_read", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_a_counter_is_an_input_once_it_has_been_counted(is_read: bool, training: bool) -> None:
    found = assert_equivalent(
        lambda: _Steps(is_read), _many, graphs=None, recompiles=1, training=training
    )
    assert found.graphs <= 2


class _AsTheDataSay(_Steps):
    """Counts in steps that the data decide."""

    def forward(self, x: Tensor) -> Any:
        steps = 1
        if x.sum() > 4:
            steps = 3
        self.steps += steps
        return x * 2


@pytest.mark.parametrize("training", [True, False])
def test_a_counter_may_be_counted_as_the_data_say(training: bool) -> None:
    found = assert_equivalent(_AsTheDataSay, _many, graphs=None, recompiles=1, training=training)
    assert found.graphs <= 2


class _EverySecond(_Steps):
    def forward(self, x: Tensor) -> Any:
        self.steps += 1
        if self.steps % 2 == 0:
            print("step", self.steps, x.sum())
        if x.sum() > 100:
            x = x / 100
        return x * min(self.steps, 4)


def test_a_counter_may_decide_what_is_traced() -> None:
    assert_equivalent(_EverySecond, _many, graphs=None, recompiles=8)


class _Rotated(_Steps):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))

    def forward(self, x: Tensor) -> Any:
        x = self.layers[self.steps % 3](x)
        self.steps = (self.steps + 1) % 3
        return x * 2 if x.sum() > 0 else x - 1


def test_a_counter_that_has_to_be_known_is_a_constant_each_time() -> None:
    assert_equivalent(_Rotated, _many, graphs=None, recompiles=4)


class _Set(_Steps):
    """Is told its step by others, and does not count."""

    def forward(self, x: Tensor) -> Any:
        y = x * 2 if x.sum() > 0 else x - 1
        return y * self.steps


def test_what_others_set_is_what_it_is_to_dynamo() -> None:
    module = _Set()
    counter = CompileCounter()
    with bcmend.patched(module):
        compiled = torch.compile(module, backend=counter, fullgraph=True)
        for step in range(4):
            module.steps = step
            assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0 * step))
    assert counter.frame_count == 4
