"""Loops of which the turns store in attributes, items, buffers and variables of outer scopes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.equivalence import Call, assert_equivalent, call

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")

_TURNS = 30


def _calls() -> list[Call]:
    drawn = torch.Generator().manual_seed(0)
    scales = [(0.3, -0.3), (1.0, 0.3), (0.1, 0.0), (2.0, -1.0), (0.0, 9.0)]
    return [call(torch.randn(5, generator=drawn) * scale + shift) for scale, shift in scales]


def _step(x: Tensor) -> Tensor:
    return torch.tanh(x * 1.1) + 0.05


class _Counts(nn.Module):
    """What a turn counts is stored by the module, by another one and in its buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.nfe, self.rate = 0, 1.0
        self.state = {"n": 0, "kept": 0}
        self.counts = [0, 0]
        self.register_buffer("steps", torch.zeros(()))

    def _turn(self, x: Tensor) -> Tensor:
        self.nfe += 1
        self.rate *= 0.75
        self.state["n"] += 2
        self.counts[-1] += 3
        self.steps = self.steps + 1
        return _step(x)

    def forward(self, x: Tensor) -> Any:
        self.steps = self.steps * 1
        for _ in range(_TURNS):
            x = self._turn(x)
            if x.sum() > 3:
                self.state["kept"] = self.nfe
                break
        return x * self.rate, self.nfe, dict(self.state), list(self.counts)


class _OneSide(nn.Module):
    """Of the sides of a branch in a turn, each stores to a number of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.weight = 0, 0, 0.0

    def forward(self, x: Tensor) -> Any:
        for _ in range(_TURNS):
            y = _step(x)
            if y.sum() > x.sum():
                self.up += 1
                self.weight += 0.5
            else:
                self.down -= 1
            x = y
            if x.sum() > 3:
                break
        return x, self.up, self.down, self.weight


class _GoesOn(nn.Module):
    """A turn is left early, having stored."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped, self.done = 0, 0.0

    def forward(self, x: Tensor) -> Any:
        for _ in range(_TURNS):
            x = _step(x)
            if x.min() < 0:
                self.skipped += 1
                continue
            self.done += 1.5
            if x.sum() > 3:
                break
        return x, self.skipped, self.done


class _Inherits(nn.Module):
    """A number of the class, of which the module has none before a turn."""

    n = 1000

    def forward(self, x: Tensor) -> Any:
        for _ in range(_TURNS):
            if x.sum() > 4:
                break
            x = _step(x)
            self.n = self.n + 1
        return x * 1


_COUNTED = 0


def _global_of_one_side(x: Tensor) -> Any:
    global _COUNTED
    _COUNTED = 0
    for _ in range(_TURNS):
        x = _step(x)
        if x.sum() < 1:
            _COUNTED += 1
        elif x.sum() > 4:
            break
    return x, _COUNTED


def _outer_variable(x: Tensor) -> Any:
    n, last = 0, x

    def turn(y: Tensor) -> Tensor:
        nonlocal n, last
        n += 1
        last = y
        return _step(y)

    for _ in range(_TURNS):
        x = turn(x)
        if x.sum() > 3:
            break
    return x, n, last * 1


def _items_by_two_names(x: Tensor) -> Any:
    held = [1, 2, x]
    same = held
    for _ in range(_TURNS):
        held[-1] = _step(held[2])
        same[1] += 1
        held[0] = same[1]
        if same[2].sum() > 3:
            break
    return held, held is same


MODULES = [_Counts, _OneSide, _Inherits]
FUNCTIONS = [_global_of_one_side, _outer_variable, _items_by_two_names]


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("program", MODULES)
def test_a_module_whose_turns_store(program: type[nn.Module], fullgraph: bool) -> None:
    assert_equivalent(program, _calls, fullgraph=fullgraph, graphs=None, recompiles=None)


@pytest.mark.parametrize("program", MODULES)
def test_such_a_module_in_training(program: type[nn.Module]) -> None:
    assert_equivalent(
        program, _calls, training=True, backend="aot_eager", graphs=None, recompiles=None
    )


@pytest.mark.parametrize("program", [_Counts, _OneSide])
def test_such_a_module_with_inductor(program: type[nn.Module]) -> None:
    assert_equivalent(program, _calls, backend="inductor", graphs=None, recompiles=None)


@pytest.mark.parametrize(("training", "backend"), [(False, "eager"), (True, "aot_eager")])
def test_a_turn_that_stores_and_goes_on(training: bool, backend: str) -> None:
    assert_equivalent(
        _GoesOn,
        _calls,
        training=training,
        backend=backend,
        fullgraph=False,
        graphs=None,
        recompiles=None,
    )


@pytest.mark.parametrize(("training", "backend"), [(False, "eager"), (True, "aot_eager")])
@pytest.mark.parametrize("program", FUNCTIONS)
def test_a_function_whose_turns_store(program: Any, training: bool, backend: str) -> None:
    assert_equivalent(
        lambda: program,
        _calls,
        training=training,
        backend=backend,
        graphs=None,
        recompiles=None,
    )


class _TakesItems(nn.Module):
    """A turn advances an iterator that the program holds."""

    def __init__(self, *, is_range: bool) -> None:
        super().__init__()
        self.held = SimpleNamespace(left=iter(range(500) if is_range else list(range(500))))

    def forward(self, x: Tensor) -> Any:
        for _ in range(_TURNS):
            x = _step(x) + next(self.held.left) * 0.001
            if x.sum() > 3:
                break
        return x


@pytest.mark.parametrize("is_range", [False, True])
def test_a_turn_that_advances_an_iterator_from_before_is_no_operator(is_range: bool) -> None:
    assert_equivalent(
        lambda: _TakesItems(is_range=is_range),
        lambda: _calls()[:1],
        fullgraph=False,
        graphs=None,
        recompiles=None,
    )
