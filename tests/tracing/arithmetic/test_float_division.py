"""``//`` and ``%`` of floating numbers out of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.equivalence import assert_equivalent, call

BACK_ENDS = ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]


def _given(*numbers: float) -> Callable[[], list[Any]]:
    """Return what makes the calls of a program: each with a number, and with one."""
    return lambda: [
        call(torch.tensor([each, 1.0], dtype=torch.float64, requires_grad=True)) for each in numbers
    ]


@pytest.mark.parametrize("backend", BACK_ENDS)
def test_a_quotient_is_that_of_python(backend: str) -> None:
    def program(x: Tensor) -> Any:
        v = x[0].item()
        return x * (v // 0.1), x + 7 // (v + 3), v // -0.3  # floor(1.0 / 0.1) is 10.0

    assert_equivalent(lambda: program, _given(1.0, 0.7, -0.4, 5.75), backend=backend)


@pytest.mark.parametrize("backend", BACK_ENDS)
def test_a_branch_on_a_quotient_takes_the_side_of_python(backend: str) -> None:
    def program(x: Tensor) -> Tensor:
        return x * 2 if x[0].item() // 0.1 > 9.5 else x * 3

    assert_equivalent(lambda: program, _given(1.0, 0.7, 2.5), backend=backend)


@pytest.mark.parametrize("backend", BACK_ENDS)
def test_a_remainder_of_one_is_not_zero(backend: str) -> None:
    def program(x: Tensor) -> Any:
        v = abs(x[0].item()) % 1
        return torch.quantile(x, v), x.abs() ** v

    assert_equivalent(lambda: program, _given(2.3, 0.7, -0.4, 5.75), backend=backend)


@pytest.mark.parametrize("backend", BACK_ENDS)
def test_a_remainder_has_the_sign_of_the_divisor(backend: str) -> None:
    def program(x: Tensor) -> Any:
        v = x[0].item()
        v %= -0.75
        return F.leaky_relu(x, v), int(v * 4) * x, 1 % (x[1].item() + 1.5)

    assert_equivalent(lambda: program, _given(2.25, 0.75, -0.5), backend=backend)


@pytest.mark.parametrize("backend", BACK_ENDS)
@pytest.mark.parametrize("divided", [lambda v, w: v // w, lambda v, w: v % w], ids=["//", "%"])
def test_a_divisor_of_zero_raises(divided: Callable[[float, float], float], backend: str) -> None:
    def program(x: Tensor) -> Tensor:
        print("before")
        v = divided(x[0].item(), x[0].item() - 1.0)
        print("after")
        return x * v

    assert_equivalent(lambda: program, _given(3.0, 1.0, 0.5), backend=backend)


@pytest.mark.parametrize("backend", BACK_ENDS)
def test_a_quotient_and_its_remainder_at_once(backend: str) -> None:
    def program(x: Tensor) -> Any:
        row, column = divmod(int(x.argmax()), 2)
        whole, rest = divmod(x[0].item(), 0.75)
        hours, seconds = divmod(97, int(x[0]) + 4)
        return x[row] * column, whole, rest * x, hours - seconds, divmod(-int(x[0]), -3)

    assert_equivalent(lambda: program, _given(1.0, 0.7, 5.75, -2.25), backend=backend)


def test_a_quotient_of_sizes_and_its_remainder() -> None:
    def program(x: Tensor) -> Any:
        groups, rest = divmod(x.shape[0], 3)
        return x[: groups * 3].reshape(groups, 3).sum(0) + rest * (x.sum() > 2)

    calls = [call(torch.ones(size)) for size in (4, 7, 8, 9)]
    assert_equivalent(lambda: program, lambda: calls, graphs=None, recompiles=2)


@pytest.mark.parametrize("divisor", [0, 0.0, None])
def test_a_quotient_and_its_remainder_by_zero(divisor: float | None) -> None:
    def program(x: Tensor) -> Any:
        number = int(x[0]) if divisor is None else divisor
        return x + sum(divmod(int(x[1]) + 3, number))

    assert_equivalent(
        lambda: program, _given(0.0, 2.0), fullgraph=False, graphs=None, recompiles=None
    )
