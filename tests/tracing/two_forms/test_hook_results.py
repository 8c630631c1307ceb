"""Hooks of modules that return something where the data say so, and else ``None``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.equivalence import Call, assert_equivalent, call, compare


class _Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(2, 2), nn.Linear(2, 2)
        self.calls: list[str] = []

    def forward(self, x: Tensor) -> Tensor:
        return self.other(torch.relu(self.one(x)))


def _calls() -> list[Call]:
    return [call(torch.ones(2) * each) for each in (1, -100, 100, 0.01)]


def _lifted(module: nn.Module, inputs: Any, output: Tensor) -> Tensor | None:
    return output + 0.5 if (output <= 0).all() else None


def _clamped(module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor] | None:
    (x,) = inputs
    if x.abs().max() > 10:
        return (x.clamp(-10, 10),)
    return None


def _of_another_type(module: nn.Module, inputs: Any, output: Tensor) -> Tensor | None:
    return output.double() if output.sum() > 0 else None


def _doubled(module: nn.Module, inputs: Any, output: Tensor) -> Tensor | None:
    return output * 2 if output.sum() > 0 else None


def _after_the_first() -> nn.Module:
    model = _Two()
    model.one.register_forward_hook(_lifted)
    return model


def _before_the_second() -> nn.Module:
    model = _Two()
    model.other.register_forward_pre_hook(_clamped)
    return model


def _one_after_the_other() -> nn.Module:
    model = _Two()
    for each in (_lifted, _doubled, _lifted):
        model.other.register_forward_hook(each)
    return model


@pytest.mark.parametrize("make", [_after_the_first, _before_the_second, _one_after_the_other])
@pytest.mark.parametrize("training", [False, True])
def test_the_module_goes_on_with_one_tensor(make: Callable[[], nn.Module], training: bool) -> None:
    assert_equivalent(make, _calls, training=training)


def test_a_result_of_another_type_is_no_other_result() -> None:
    def make() -> nn.Module:
        model = _Two()
        model.other.register_forward_hook(_of_another_type)
        return model

    found = compare(make, _calls, fullgraph=False)
    assert not found.differences
