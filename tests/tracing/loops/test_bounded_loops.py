"""Loops that a count bounds beside a tensor, with more iterations than are unrolled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.equivalence import Call, assert_equivalent, call


def _count_first(x: Tensor) -> int:
    n = 0
    while n < 30 and x.sum() < 10:
        n += 1
        x = x * 2
    return n


def _count_last(x: Tensor) -> tuple[Tensor, int]:
    n = 0
    while x.sum() < 10 and n < 30:
        n += 1
        x = x * 2
    return x, n


def _three_conditions(x: Tensor) -> tuple[Tensor, int]:
    n = 40
    while n > 3 and x.sum() < 10 and x.max() <= 8:
        n -= 2
        x = x * 2 + n
    else:
        x = x - 1
    return x, n


def _in_an_arm(x: Tensor) -> tuple[Tensor, int]:
    n = 0
    if x[0] < 1:
        while n < 30 and x.sum() < 10:
            n += 1
            x = x * 2
    return x * 3, n


def _read_in_the_loop(x: Tensor) -> Tensor:
    n = 1
    while n <= 30 and x.sum() < 10:
        x = x + n / 4
        n += 1
    return x * n


def _twice(x: Tensor) -> tuple[Tensor, int]:
    n, k = 0, 0
    while n < 30 and x.sum() < 10:
        n += 1
        x = x * 2
    while k < 26 and x.sum() > 1:
        k += 1
        x = x / 2
    return x, n - k


PROGRAMS = [_count_first, _count_last, _three_conditions, _in_an_arm, _read_in_the_loop, _twice]


def _inputs() -> Sequence[Call]:
    return [call(torch.full((3,), each)) for each in (1.0, 0.2, 5.0, 1e-20, -1.0)]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_long_loop_with_a_bound(program: Callable[[Tensor], Any], backend: str) -> None:
    assert_equivalent(lambda: program, _inputs, may_copy=True, backend=backend)


@pytest.mark.parametrize("program", PROGRAMS[1:4])
def test_in_training(program: Callable[[Tensor], Any]) -> None:
    assert_equivalent(
        lambda: program, _inputs, may_copy=True, training=True, graphs=None, recompiles=None,
        fullgraph=False,
    )  # fmt: skip


def _appends(x: Tensor) -> Tensor:
    n, found = 0, []
    while n < 40 and x.sum() < 10:
        n += 1
        x = x * 2
        found.append(x)
    return torch.stack([x, *found])


def test_the_refusal_of_a_long_loop_says_why_it_is_unrolled() -> None:
    found = assert_equivalent(
        lambda: _appends, _inputs, fullgraph=False, graphs=None, recompiles=None
    )
    assert found.report is not None
    refused = [each for each in found.report.sites if each.refusal == "too-deep"]
    why = "a loop is traced turn by turn, since a turn changes a list, a dictionary or a set"
    assert refused and all(why in str(each.detail) for each in refused)
