"""Output of which an argument is chosen by a condition on a tensor."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.equivalence import assert_equivalent, call

LOG = logging.getLogger("chosen")


def _a_value(x: Tensor) -> Tensor:
    print("a" if x[0] > 0 else "b")
    return x + 1


def _of_a_local(x: Tensor) -> Tensor:
    m = x.mean()
    print("positive" if m > 0 else "not", "small" if not m > 1 else "large")
    return x + 1


def _equal(x: Tensor) -> Tensor:
    print(f"{'one' if x[0] == 1 else 'other'}", end="!" if x[0] > x[1] or x[0] > 2 else "?\n")
    return x + 1


def _several(x: Tensor) -> Tensor:
    print(*(["first"] if x[0] > 0 else ["second", "third"]), len("a" if x[0] < 0 else "abc"))
    return x + 1


def _with_a_tensor_in_a_list(x: Tensor) -> Tensor:
    print("in" if x[0].item() in [1.0, 4.0] else "out", "none" if x is None else "some")
    return x + 1


def _of_a_log(x: Tensor) -> Tensor:
    LOG.log(logging.INFO if x[0] > 0 else logging.ERROR, "x is %s", "a" if x[0] > 0 else "b")
    return x + 1


def _of_a_warning(x: Tensor) -> Tensor:
    warnings.warn(
        "a" if x[0] > 0 else "b", UserWarning if x[1] > 0 else FutureWarning, stacklevel=2
    )
    return x + 1


@pytest.mark.parametrize(
    "program",
    [
        _a_value,
        _of_a_local,
        _equal,
        _several,
        _with_a_tensor_in_a_list,
        _of_a_log,
        _of_a_warning,
    ],
)
def test_the_argument_is_chosen_in_each_call(program: Callable[[Tensor], Tensor]) -> None:
    def calls() -> list[Any]:
        given = ([1.0, 2.0], [-1.0, -2.0], [4.0, -1.0], [-3.0, 1.0])
        return [call(torch.tensor(each)) for each in given]

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert_equivalent(lambda: program, calls)
