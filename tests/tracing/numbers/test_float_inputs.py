"""Floats that differ from call to call, and that an arm reads first."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.equivalence import assert_equivalent, call

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


class State:
    """Holds a number that is no part of a module, of which Dynamo makes an input."""

    def __init__(self) -> None:
        self.rate = 0.5


def decaying(is_read_later: bool) -> Any:
    state = State()

    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            state.rate = state.rate * 0.75
        return x * state.rate if is_read_later else x + 1

    return program


def _inputs() -> Any:
    return [call(torch.full((2,), side)) for side in (1.0, 2.0, -1.0, 3.0, -2.0)]


@pytest.mark.parametrize("is_read_later", [False, True])
def test_the_number_is_taken_in_the_main_graph(is_read_later: bool) -> None:
    assert_equivalent(lambda: decaying(is_read_later), _inputs, graphs=2, recompiles=1)


@pytest.mark.parametrize("is_read_later", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_the_number_with_a_back_end_that_has_a_guard_on_it(
    is_read_later: bool, training: bool
) -> None:
    assert_equivalent(
        lambda: decaying(is_read_later),
        _inputs,
        backend="aot_eager",
        training=training,
        graphs=None,
        recompiles=None,
    )
