"""Draws of Python and numpy that depend on earlier ones, and draws in arms."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.exc import Unsupported, UserError
from torch._dynamo.testing import CompileCounter

import bcmend
from tests.equivalence import assert_equivalent, call

Program = Callable[..., Any]


pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


_STATES = (random.getstate, numpy.random.get_state, torch.get_rng_state)


def _called(program: Program, inputs: list[Any]) -> list[Any]:
    """Return what calls give, from one seed, and the states of the generators behind each."""
    random.seed(3)
    numpy.random.seed(3)
    torch.manual_seed(3)
    found = []
    for each in inputs:
        try:
            result = program(each.clone())
        except (ValueError, IndexError) as error:
            result = type(error), str(error)
        found.append((repr(result), *(repr(state()) for state in _STATES)))
    return found


def _assert_same_streams(
    program: Program, *, graphs: int | None = 1, inputs: list[Tensor] | None = None
) -> None:
    """Assert that calls draw what they draw in eager execution, in one graph for all numbers."""
    given = [torch.arange(24.0).view(2, 12) - 5] * 14 if inputs is None else inputs
    expected = _called(copy.deepcopy(program), given)
    assert len(set(expected)) > 1, "the numbers are others in other calls"
    counter = CompileCounter()  # type: ignore[no-untyped-call]
    compiled = torch.compile(bcmend.patch(program), backend=counter, fullgraph=graphs is not None)
    assert _called(compiled, given) == expected
    assert graphs in (None, counter.frame_count)


def _masked(x: Tensor) -> Tensor:
    x = x.clone()
    for _ in range(2):
        width = random.randrange(0, 5)
        start = random.randrange(0, 12 - width)
        x[:, start : start + width] = 0
    return x


def _masked_by_fractions(x: Tensor) -> Tensor:
    x = x.clone()
    width = int(numpy.random.uniform(0.0, 5.0))
    start = int(random.uniform(0, 12 - width))
    x[:, start : start + width] = x.mean()
    return x


def _of_numpy(x: Tensor) -> Tensor:
    width = numpy.random.randint(1, 5)
    share = numpy.sqrt(1 - numpy.random.beta(1.0, 1.0))
    return x * numpy.random.randint(0, 12 - width) + numpy.random.uniform(0.0, share)


@pytest.mark.parametrize("program", [_masked, _masked_by_fractions, _of_numpy])
def test_bounds_that_were_drawn(program: Program) -> None:
    _assert_same_streams(program)


def test_bounds_of_sizes_are_no_variants() -> None:
    def program(x: Tensor) -> Tensor:
        x = x.clone()
        width = random.randint(0, 5)
        start = random.randint(0, x.shape[1] - width)
        x[:, start : start + width] = 0
        return x + random.randint(0, x.shape[1])

    inputs = [torch.arange(2.0 * size).view(2, size) for size in range(7, 20)]
    _assert_same_streams(program, graphs=2, inputs=inputs)


def test_bounds_out_of_data() -> None:
    def program(x: Tensor) -> Tensor:
        return x + random.randint(0, int(x.max()))

    inputs = [torch.full((2,), size) for size in range(3, 17)]
    _assert_same_streams(program, inputs=inputs)


def test_a_draw_that_fails_on_what_was_drawn() -> None:
    def program(x: Tensor) -> Tensor:
        x.add_(1)
        bound = random.randrange(0, 3)
        return x * random.randrange(0, bound) + random.random()

    def handled(x: Tensor) -> Tensor:
        bound = random.randrange(0, 3)
        try:
            return x * random.randrange(0, bound)
        except ValueError:
            return x - random.random()

    _assert_same_streams(program)
    bcmend.unpatch()
    _assert_same_streams(handled)


def test_an_arm_draws_where_it_is_taken() -> None:
    def program(x: Tensor) -> Tensor:
        if random.random() < 0.7:
            scale = random.uniform(0.5, 1.5)
            if random.random() < 0.5:
                x = x.softmax(0) * random.gauss(0, 1)
            else:
                x = x * scale + random.randint(1, 3)
        else:
            x = x + numpy.random.rand() + torch.from_numpy(numpy.random.rand(12)).float()
        return x * random.random()

    _assert_same_streams(program)


def test_a_condition_on_an_array_that_was_drawn() -> None:
    def program(x: Tensor) -> Tensor:
        share = numpy.random.rand(1)
        if x.size(1) > 2 and share * 2 < 1.2:
            x = x * numpy.random.beta(1.0, 1.0)
        return x + random.random()

    _assert_same_streams(program)


def test_arms_that_return() -> None:
    def program(x: Tensor) -> Tensor:
        if random.random() < 0.5:
            return x * random.uniform(1, 2)
        x = x.softmax(1)
        if numpy.random.rand() < 0.5:
            return x + random.uniform(1, 2)
        return x - random.random()

    _assert_same_streams(program)


def test_turns_of_a_loop() -> None:
    def program(x: Tensor) -> Tensor:
        x = x.clone()
        for _ in range(3):
            if random.random() < 0.5:
                place = random.randint(0, 11)
                x[:, place : place + random.randint(0, 11 - place)] = 0
        return x

    _assert_same_streams(program)


def test_images_are_mixed() -> None:
    def program(x: Tensor) -> Tensor:
        if numpy.random.rand() < 0.5:
            share = numpy.random.beta(1.0, 1.0)
            order = torch.randperm(x.size(0))
            width = int(12 * numpy.sqrt(1 - share))
            middle = numpy.random.randint(12)
            left = numpy.clip(middle - width // 2, 0, 12)
            right = numpy.clip(middle + width // 2, 0, 12)
            x[:, left:right] = x[order, left:right]
            return x * (1 - (right - left) / 12)
        return x

    _assert_same_streams(program)


def test_what_an_arm_that_is_refused_would_draw_is_not_drawn() -> None:
    def program(x: Tensor) -> Tensor:
        if random.random() < 0.5:
            x = x * random.random()
            x.resize_(3, 12)
            return x[:2] + random.random()
        return x - random.random()

    _assert_same_streams(program, graphs=None)


def test_a_condition_on_data_is_computed_in_front() -> None:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = x * random.uniform(1, 2)
        return x + random.random()

    inputs = [torch.full((2,), float(sign)) for sign in (1, -1, 1, 1, -1, 1, -1, -1, 1, -1, 1)]
    _assert_same_streams(program, graphs=2, inputs=inputs)


class _Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(12))

    def forward(self, x: Tensor) -> Tensor:
        if random.random() < 0.5:
            x = x * self.weight * random.uniform(0.5, 1.5)
        elif random.random() < 0.5:
            x = (x + self.weight) * random.choice([2, 3, 5])
        return x * self.weight + random.random()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_training(backend: str) -> None:
    def inputs() -> list[Any]:
        return [call(torch.arange(24.0).view(2, 12) + each) for each in range(3)]

    assert_equivalent(_Weighted, inputs, backend=backend, training=True)


class _Gate(nn.Module):
    def __init__(self, draw: Program) -> None:
        super().__init__()
        self.gate, self.draw = nn.Linear(2, 1), draw

    def forward(self, x: Tensor) -> Tensor:
        if self.gate(x).sum() > 0:
            return x * 2 + self.draw() * 0
        return x - 1


@pytest.mark.parametrize(
    "draw", [random.random, numpy.random.rand, lambda: torch.from_numpy(numpy.random.randn(2))]
)
def test_a_draw_under_a_condition_that_is_not_known_before_stays(draw: Program) -> None:
    """Dynamo would draw from torch's generator in place of numpy's."""
    with pytest.raises((Unsupported, UserError)):
        bcmend.compile(_Gate(draw), backend="eager", fullgraph=True)(torch.ones(2))


def test_a_draw_in_the_body_of_an_operator_stays() -> None:
    def program(x: Tensor) -> Tensor:
        n = 0
        while x.sum() < 100:
            x = x * 2 + random.random()
            n += 1
        return x

    inputs = [torch.full((2,), float(start)) for start in (1, 3, 9, 1)]
    _assert_same_streams(program, graphs=None, inputs=inputs)


@pytest.mark.parametrize("whole", [int, round, math.floor, math.ceil, math.trunc])
def test_whole_numbers_are_computed_with_the_draw(whole: Callable[[float], int]) -> None:
    def program(x: Tensor) -> Tensor:
        if random.random() < 0.8:
            width = whole(random.uniform(0, 5))
            return x[:, width : 2 * width + 1].sum(1)
        return x.sum(1) * whole(numpy.random.normal() * 3)

    _assert_same_streams(program)
    sites = [each for each in bcmend.report(program).sites if each.kind == "number"]
    assert sites and {each.status for each in sites} == {"mended"}


def test_a_whole_number_of_what_is_infinite_fails_as_in_eager_execution() -> None:
    def program(x: Tensor) -> Tensor:
        return x * int(random.choice([1.5, math.inf, 2.5]))

    given = [torch.ones(2)] * 9
    expected = _called_or_failed(program, given)
    compiled = torch.compile(bcmend.patch(program), backend="eager", fullgraph=True)
    assert _called_or_failed(compiled, given) == expected


def _called_or_failed(program: Program, inputs: list[Tensor]) -> list[Any]:
    random.seed(3)
    found: list[Any] = []
    for each in inputs:
        try:
            found.append(program(each).tolist())
        except OverflowError as error:
            found.append(str(error))
    return [*found, random.getstate()]
