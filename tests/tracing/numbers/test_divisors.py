"""Division of numbers that are computed from tensors: by zero it raises, as in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.equivalence import Call, assert_equivalent, call, fresh

ROWS = ([1.0, 2.0, 0.0], [0.0, 0.0, 0.0], [0.1, 0.1, 0.2], [0.7, -9.0, 0.6])


def _above(x: Tensor) -> int:
    return int((x > 0.5).sum())


def _caught(x: Tensor) -> Tensor:
    try:
        share = 1 / _above(x)
    except ZeroDivisionError:
        share = 5.0
    return x * share


DIVISIONS: dict[str, Callable[[Tensor], Any]] = {
    "an integer": lambda x: x / (1.0 / _above(x)),
    "a float": lambda x: x * (2 / x.sum().item()),
    "floors": lambda x: (x * (7 // _above(x)), 7 % _above(x)),
    "asked before": lambda x: x * (1 / _above(x) if _above(x) else 0.0),
    "caught": _caught,
}


def _calls() -> list[Call]:
    return [call(torch.tensor(row)) for row in ROWS]


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("name", DIVISIONS)
def test_a_division_by_zero_raises(name: str, backend: str) -> None:
    assert_equivalent(lambda: fresh(DIVISIONS[name]), _calls, backend=backend)
