"""Branches and loops on tensors of classes derived from ``torch.Tensor``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from bcmend.dynamo.values import has_own_operators

Program = Callable[[Tensor, Tensor, Tensor], Any]


class Plain(torch.Tensor):
    """Has no methods of its own."""


class Other(torch.Tensor):
    """Has none either."""


def _of_two_classes(x: Tensor, p: Tensor, w: Tensor) -> Tensor:
    y = w.as_subclass(Plain) if p.sum() > 0 else w.as_subclass(Other)
    return y * 2


def _nested() -> Tensor:
    parts = [torch.ones(2, 4), torch.full((3, 4), 2.0)]
    return torch.nested.nested_tensor(parts, layout=torch.jagged)


def _reducing(x: Tensor, p: Tensor, w: Tensor) -> Tensor:
    return (x @ w).values().sum() if p.sum() > 0 else p.sum()


def _choosing(x: Tensor, p: Tensor, w: Tensor) -> Tensor:
    return x @ w @ w if p.sum() > 0 else x * 2


def _beside(x: Tensor, p: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    y = w @ w if p.sum() > 0 else w * 2
    return y, x * 2


def _asking(x: Tensor, p: Tensor, w: Tensor) -> Tensor:
    return w @ w if x.values().sum() > 0 else w * 2


def _looping(x: Tensor, p: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    while p.abs().sum() < 40:
        p = p * 2
        x = x * 2
    return x, p


def _shown(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_shown, value))
    if value.is_nested:
        return type(value), [each.tolist() for each in value.unbind()]
    return type(value), value.tolist()


def _assert_right(program: Program, make: Callable[[], Tensor]) -> None:
    compiled = torch.compile(bcmend.patch(program), backend="eager")
    eager = [_called(program, make, value) for value in (1.0, -1.0, 5.0)]
    assert [_called(compiled, make, value) for value in (1.0, -1.0, 5.0)] == eager


def _called(program: Program, make: Callable[[], Tensor], value: float) -> Any:
    return _shown(program(make(), torch.full((2,), value), torch.full((4, 4), 0.5)))


@pytest.mark.parametrize("program", [_reducing, _choosing, _beside, _asking, _looping])
def test_nested_tensors_give_what_eager_execution_gives(program: Program) -> None:
    _assert_right(program, _nested)


@pytest.mark.parametrize("program", [_choosing, _beside, _looping, _of_two_classes])
def test_a_plain_class_stays(program: Program) -> None:
    _assert_right(program, lambda: torch.ones(3, 4).as_subclass(Plain))


def test_nested_tensors_have_operators_of_their_own() -> None:
    assert has_own_operators(_nested())
    assert not has_own_operators(torch.ones(2).as_subclass(Plain))
    assert not has_own_operators(torch.nn.Parameter(torch.ones(2)))
