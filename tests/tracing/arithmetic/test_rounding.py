"""``round(v, n)`` with digits that differ from call to call, or are read from a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.equivalence import assert_equivalent, call


def _of_a_constant(x: Tensor, digits: int) -> Any:
    y = x * round(2.5678, digits)
    return y + 1 if y.sum() > 0 else y


def _of_what_is_read(x: Tensor, digits: int) -> Any:
    y = x * round(x[1].item(), ndigits=digits)
    return y + 1 if y.sum() > 0 else y


def _by_keywords(x: Tensor, digits: int) -> Any:
    y = x * round(ndigits=digits, number=2.5678)
    return y + 1 if y.sum() > 0 else y


def _of_itself(x: Tensor, digits: int) -> Any:
    y = x * round(digits * 1.2345, digits)
    return y + round(125, -digits) + round(True, digits) if y.sum() > 0 else y


def _to_digits_that_are_read(x: Tensor, digits: int) -> Any:
    y = x * round(2.5678, int(x[0].item()))
    return y + 1 if y.sum() > 0 else y


def _in_an_arm(x: Tensor, digits: int) -> Any:
    if x[1] > 0:
        x = x * round(2.5678, digits)
    return x + 1


PROGRAMS: list[Callable[..., Any]] = [
    _of_a_constant,
    _of_what_is_read,
    _by_keywords,
    _of_itself,
    _to_digits_that_are_read,
    _in_an_arm,
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_digits_that_differ(program: Callable[..., Any]) -> None:
    def calls() -> list[Any]:
        pairs = ((1, 1.2345), (2, 1.2345), (3, -1.2345), (0, 1.2345))
        return [call(torch.tensor([digits, value]), digits) for digits, value in pairs]

    assert_equivalent(lambda: program, calls, fullgraph=False, graphs=None, recompiles=None)
