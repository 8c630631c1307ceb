"""Conditions and values of branches and loops that are arrays of numpy, tensors to the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import bcmend
from tests.equivalence import Call, assert_equivalent, call, fresh

ROWS = ([1.0, 2.0], [0.0, 0.0], [-0.25, 0.75], [0.5, -9.0], [-1.0, -1.0])


def _chosen(x: Tensor) -> Any:
    a = x.numpy()
    if a.max() > 0.6:
        a = a * 2
    return a, x + 1


def _checked(x: Tensor) -> Any:
    a = x.numpy()
    if np.any(a < -0.5):
        raise ValueError(f"negative: {a}")
    return torch.from_numpy(np.sqrt(np.abs(a)))


def _halved(x: Tensor) -> Any:
    a = x.numpy()
    while a.max() > 0.3:
        a = a / 2
    print(a)
    return a


def _counted(x: Tensor) -> Any:
    a, count = x.numpy(), 0
    for _ in range(3):
        if a.sum() < 1:
            break
        a, count = a - np.float32(0.5), count + 1
    return a, count


def _asked(x: Tensor) -> Any:
    a = x.detach().cpu().numpy()
    if any(each > 1 for each in a):
        return x
    return x - 1 if not (a > 0).all() and a[0] < 0 else None


def _array_or_tensor(x: Tensor) -> Any:
    return x.numpy() if x.sum() > 0 else x


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "chosen": _chosen,
    "checked": _checked,
    "halved": _halved,
    "counted": _counted,
    "asked": _asked,
    "array or tensor": _array_or_tensor,
}


def _calls() -> list[Call]:
    return [call(torch.tensor(row)) for row in ROWS]


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_arrays_decide_and_are_chosen(name: str, backend: str) -> None:
    assert_equivalent(lambda: fresh(PROGRAMS[name]), _calls, backend=backend)


def test_a_turn_that_makes_an_array_of_a_tensor_is_not_carried() -> None:
    def program(x: Tensor) -> Any:
        y: Any = x
        while y.sum() > 1:
            y = y.numpy() / 2 if isinstance(y, Tensor) else torch.from_numpy(y / 2)
        return y

    mended = bcmend.patch(program)
    for row in ROWS:
        expected, found = (
            program(torch.tensor(row)),
            torch.compile(mended, backend="eager")(torch.tensor(row)),
        )
        assert type(expected) is type(found)
        assert expected.tolist() == found.tolist()
