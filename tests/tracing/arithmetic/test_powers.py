"""Powers of negative numbers are those of eager execution, in graphs and in choices inside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from tests.equivalence import Call, assert_equivalent, call


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    bcmend.unpatch()


def _of_a_tensor(x: Tensor) -> Tensor:
    if x.sum() > 0:
        x = x + 1
    return (-1) ** x + (-2.5) ** x


def _in_place(x: Tensor) -> Tensor:
    sign: Any = -2
    sign **= x
    return sign * 2 if x.sum() > 0 else sign


def _in_a_side(x: Tensor) -> Tensor:
    if x.sum() > 0:
        found = torch.linalg.inv(torch.eye(3) * 2) @ ((-2) ** x)
        return found * found.exp().sum()
    return x


def _of_a_number(x: Tensor) -> Tensor:
    return x * (-2) ** int(x[0])


def _of_a_number_by_the_function(x: Tensor) -> Tensor:
    return x * pow(-3, int(x[0]))


def _of_what_is_left(x: Tensor) -> tuple[Tensor, int]:
    sign = (-1) ** (int(x[0]) % 2)
    return x * sign, sign


def _of_a_size(x: Tensor) -> Tensor:
    x = x * (-1) ** x.shape[0]
    return x + 1 if x.sum() > 0 else x


_PROGRAMS = (
    _of_a_tensor,
    _in_place,
    _in_a_side,
    _of_a_number,
    _of_a_number_by_the_function,
    _of_what_is_left,
)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", _PROGRAMS)
def test_a_power_has_the_sign_of_eager(program: Callable[..., Any], backend: str) -> None:
    mended = torch.compile(bcmend.patch(program), backend=backend, fullgraph=True)
    for first in (1.0, 2.0, 0.0, -4.0, 5.0):
        x = torch.tensor([first, 3.0, 0.0])
        torch.testing.assert_close(mended(x.clone()), program(x.clone()), equal_nan=True)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_size_as_the_exponent_says_the_sign(backend: str) -> None:
    mended = torch.compile(bcmend.patch(_of_a_size), backend=backend, fullgraph=True, dynamic=True)
    for size in (3, 4, 5, 6):
        x = torch.ones(size)
        torch.testing.assert_close(mended(x), _of_a_size(x))


def _of_two_arguments(x: Tensor) -> Any:
    total, count = x.sum().item(), int((x > 0).sum())
    if total > 1:
        x = pow(x, 2)
    return x + pow(x.sum(), 3), pow(2 * total, 2), pow(count, 2), pow(2, count), pow(2, 5)


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
)
def test_a_power_is_called_by_its_name(backend: str, training: bool, fullgraph: bool) -> None:
    def calls() -> list[Call]:
        values = ([1.0, 2.0], [-1.0, -2.0], [0.0, 0.5])
        return [call(torch.tensor(each)) for each in values]

    assert_equivalent(
        lambda: _of_two_arguments,
        calls,
        backend=backend,
        fullgraph=fullgraph,
        training=training,
        graphs=None,
        recompiles=None,
    )
