"""Floats and numbers of arguments, which AOTAutograd's cache does not have in its key."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._inductor.utils import fresh_cache

import bcmend
from tests import new_process

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")
ROOT = Path(bcmend.__file__).parents[1]


class Scaled(nn.Module):
    """Scales a loss, as with half precision."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: Tensor) -> Any:
        loss = (x * self.scale).sum()
        if not torch.isfinite(loss):
            self.scale = self.scale / 2
        else:
            self.scale = self.scale * 1.5
        return loss


class Grown(Scaled):
    def forward(self, x: Tensor) -> Any:
        if x.sum() > 0:
            x = x * self.scale
        self.scale = self.scale + 0.5
        return x


class Halved(Scaled):
    """Halves the learning rate of a group in every second step."""

    def __init__(self, scale: float) -> None:
        super().__init__(scale)
        self.group = {"lr": scale}
        self.step = 0

    def forward(self, x: Tensor) -> Any:
        self.step += 1
        if self.step % 2 == 0:
            self.group["lr"] *= 0.5
        if x.sum() > 100:
            raise ValueError("too much")
        return x * self.group["lr"]


class Returned(Scaled):
    def forward(self, x: Tensor) -> Any:
        number = x.sum().item() * self.scale
        self.scale = self.scale - 0.75
        if x.sum() > 100:
            number = 0.0
        return number


class Printed(Scaled):
    def forward(self, x: Tensor) -> Any:
        print(f"x is {x.sum()}", self.scale * 0.9)
        self.scale = self.scale * 0.5
        return x * 2


class Averaged(Scaled):
    def forward(self, x: Tensor) -> Any:
        if x.sum() > 100:
            raise ValueError("too much")
        self.scale = self.scale * 0.5 + 0.5 * x.sum().item()
        return x * 2


class Nested(Scaled):
    """Holds floats in a list, and one in a dictionary in it."""

    def __init__(self, scale: float) -> None:
        super().__init__(scale)
        self.numbers: list[Any] = [scale, {"other": scale / 2}]

    def forward(self, x: Tensor) -> Any:
        if x.mean() > 0.5:
            x = x + self.numbers[0]
            self.numbers[1]["other"] = self.numbers[0] - self.numbers[1]["other"]
        self.numbers[0] = self.numbers[0] * 1.1
        return x / self.numbers[1]["other"]


class Clamped(Scaled):
    """Keeps a float between bounds, and stores what functions of numbers make of it."""

    def forward(self, x: Tensor) -> Any:
        if x.mean() > 100:
            raise ValueError("too much")
        self.scale = max(self.scale * 0.9, 0.1)
        self.pair = (abs(self.scale) ** 2, -self.scale)
        self.is_large = self.scale > 5
        return x * min(1.0, self.scale / 10)


class Counted(Scaled):
    """Computes with integers that calls count, and with sizes."""

    def __init__(self, scale: float) -> None:
        super().__init__(scale)
        self.number = int(scale)

    def forward(self, x: Tensor) -> Any:
        if x.sum() > 0:
            x = x * self.number
        self.number = self.number + 3
        self.half, self.quarter = self.number // 2, self.number * 0.25
        self.product = self.number * self.scale
        self.is_large = self.number > 12
        self.size = x.shape[0] * 0.5
        return x * self.size


class OfTensors(Scaled):
    """Computes with the numbers that tensors of the program hold."""

    def __init__(self, scale: float) -> None:
        super().__init__(scale)
        self.whole, self.bound = torch.tensor(int(scale)), torch.tensor(scale, dtype=torch.float64)

    def forward(self, x: Tensor) -> Any:
        y = x * (self.whole.item() // 2) if x.sum() > 0 else x
        y = y.clamp(max=self.bound).roll(self.whole)
        self.whole, self.bound = self.whole + 2, self.bound * 1.5
        return y


PROGRAMS = (
    Scaled,
    Grown,
    Halved,
    Returned,
    Printed,
    Averaged,
    Nested,
    Clamped,
    Counted,
    OfTensors,
)


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, (tuple, list)):
        return [_plain(each) for each in value]
    return value


def results(name: str, scale: float, *, is_compiled: bool, fullgraph: bool = True) -> Any:
    """Return what calls of a program return and leave, with gradients, as plain data."""
    module = globals()[name](scale)
    program: Callable[[Tensor], Any] = module
    if is_compiled:
        program = torch.compile(bcmend.patch(module), fullgraph=fullgraph)
    found = []
    for _ in range(5):
        x = torch.ones(3, requires_grad=True)
        result = program(x)
        if isinstance(result, Tensor):
            result.sum().backward()
        state = {
            each: _plain(value)
            for each, value in vars(module).items()
            if not each.startswith("_") and each != "training"
        }
        found.append([_plain(result), _plain(x.grad), state])
    if is_compiled:
        bcmend.unpatch(module)
    return json.loads(json.dumps(found))


def _numbers_in(found: Any) -> list[float]:
    if isinstance(found, dict):
        found = list(found.values())
    if isinstance(found, list):
        return [number for each in found for number in _numbers_in(each)]
    return [] if found is None else [float(found)]


def _assert_equal(found: Any, wanted: Any) -> None:
    assert _numbers_in(found) == pytest.approx(_numbers_in(wanted), rel=1e-6)


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(each, marks=() if each in (Scaled, Grown) else pytest.mark.slow)
        for each in PROGRAMS
    ],
)
def test_numbers_are_those_of_the_call_whatever_is_stored(program: type[Scaled]) -> None:
    name = program.__name__
    with fresh_cache():
        for scale in (8.0, 3.0):
            torch._dynamo.reset()
            found = results(name, scale, is_compiled=True)
            _assert_equal(found, results(name, scale, is_compiled=False))


@pytest.mark.slow
@pytest.mark.parametrize("program", [Scaled, Clamped, Counted])
def test_numbers_are_those_of_the_call_in_pieces(program: type[Scaled]) -> None:
    name = program.__name__
    with fresh_cache():
        for scale in (8.0, 3.0):
            torch._dynamo.reset()
            found = results(name, scale, is_compiled=True, fullgraph=False)
            _assert_equal(found, results(name, scale, is_compiled=False))


_OF_ANOTHER_PROCESS = (
    "import json; from tests.tracing.backends.test_known_numbers import results; "
    "print(json.dumps(results({name!r}, {scale}, is_compiled=True)))"
)


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(each, marks=() if each is Scaled else pytest.mark.slow)
        for each in (Scaled, Grown, Returned, Averaged, Counted, OfTensors)
    ],
)
def test_a_process_does_not_find_the_numbers_of_another(
    program: type[Scaled], tmp_path: Path
) -> None:
    name = program.__name__
    for scale in (8.0, 3.0):
        done = new_process.run(
            *("-c", _OF_ANOTHER_PROCESS.format(name=name, scale=scale)),
            env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout.splitlines()[-1])
        _assert_equal(found, results(name, scale, is_compiled=False))
