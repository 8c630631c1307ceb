"""What branches leave behind in different forms is tested like any other condition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.equivalence import Call, assert_equivalent, call

Program = Callable[[Tensor], Any]
VECTORS = ([1.0, 2.0, 3.0], [-1.0, -2.0, -3.0], [1.0, -4.0, 0.5], [0.0, 5.0, -1.0])


def _inputs() -> list[Call]:
    return [call(torch.tensor(vector)) for vector in VECTORS]


def _is_high(x: Tensor) -> bool:
    if x.sum() > 3:
        return True
    return bool((x == 0).any())


def _is_clean(x: Tensor) -> Any:
    return torch.isfinite(x).all() and not (x < -2).any()


def _verdict(x: Tensor) -> str | None:
    if x.max() > 4:
        return "high"
    if x.min() < -3:
        return ""
    return None


def _bool_or_truth(x: Tensor) -> Tensor:
    return x * 2 if _is_high(x) else x - 1


def _tensor_or_bool(x: Tensor) -> Tensor:
    return x * 2 if _is_clean(x) else x.clamp(min=-2)


def _word_or_none(x: Tensor) -> Tensor:
    if _verdict(x):
        x = x + 1
    return x * 3


def _number_or_number(x: Tensor) -> Tensor:
    count = 2 if x.sum() > 0 else 0
    if count:
        x = x + 1
    return x * 2


def _number_of_one_side(x: Tensor) -> Tensor:
    most = 1.5
    if x.sum() > 0:
        most = x.max().item()
    return x + 1 if most else x - 1


def _tested_twice(x: Tensor) -> Tensor:
    clean = _is_clean(x)
    if clean:
        x = x + 1
    y = x.sin()
    if not clean:
        y = y * 2
    return y


def _among_others(x: Tensor) -> Tensor:
    if _is_clean(x) and _is_high(x) and x.numel() == 3:
        return x + 1
    return x - 1


def _in_an_arm(x: Tensor) -> Tensor:
    if x.max() > 0.75:
        x = x * 2 if _is_high(x) else x.sin()
    return x + 0


def _in_a_check(x: Tensor) -> Tensor:
    if not _is_clean(x):
        raise ValueError("unclean", 3)
    return x * 2


def _of_an_older_tensor(x: Tensor) -> Tensor:
    flag = (x > 0).all()
    if x.sum() > 0:
        flag = True
    x = x + 1
    return x * 2 if flag else x


def _negated_and_returned(x: Tensor) -> tuple[Tensor, bool]:
    low = not (x.sum() > 0)
    return (x + 1 if low else x - 1), low


@pytest.mark.parametrize(
    "program",
    [
        _bool_or_truth,
        _tensor_or_bool,
        _word_or_none,
        _number_or_number,
        _number_of_one_side,
        _tested_twice,
        _among_others,
        _in_an_arm,
        _in_a_check,
        _of_an_older_tensor,
        _negated_and_returned,
    ],
    ids=lambda program: program.__name__,
)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("training", [False, True])
def test_the_side_that_was_taken_is_tested(program: Program, backend: str, training: bool) -> None:
    found = assert_equivalent(lambda: program, _inputs, backend=backend, training=training)
    assert found.graphs == 1
