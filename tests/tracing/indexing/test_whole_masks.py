"""``x[mask]`` and ``x[mask] = v`` where neither has sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.equivalence import Call, assert_equivalent, call


def _emptied(x: Tensor, norm: Tensor) -> Tensor:
    x = x * 1
    x[norm == 0] = 0
    return x.mean()


def _divided(x: Tensor, norm: Tensor) -> tuple[Tensor, Tensor]:
    x = x * 1
    has_norm = norm != 0
    x[has_norm] /= norm[has_norm]
    return x, x[has_norm].sum()


def _in_an_arm(x: Tensor, norm: Tensor) -> Tensor:
    x = x * 2
    if norm > 1:
        x[norm < 3] = -1.0
    return x


def _of_an_argument(x: Tensor, norm: Tensor) -> Tensor:
    y = x.detach()
    y[norm > 1] = 5
    return x + 1 if norm > 0 else x - 1


PROGRAMS = [_emptied, _divided, _in_an_arm, _of_an_argument]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_no_size_is_asked_for(program: Callable[..., Any], backend: str, training: bool) -> None:
    def calls() -> list[Call]:
        norms = (2, 0, 4, 2)  # a comparison gives no gradient
        return [
            call(torch.tensor(3.0, requires_grad=training), torch.tensor(each)) for each in norms
        ]

    assert_equivalent(lambda: program, calls, backend=backend, training=training)


def _into_a_leaf(x: Tensor, norm: Tensor) -> Tensor:
    x[norm > 1] = 5
    return x + 1 if norm > 0 else x - 1


def test_a_store_to_a_leaf_fails_as_in_eager_execution() -> None:
    calls = lambda: [  # noqa: E731
        call(torch.tensor(3.0, requires_grad=True), torch.tensor(each)) for each in (2.0, 0.0)
    ]
    assert_equivalent(lambda: _into_a_leaf, calls, fullgraph=False, graphs=None, recompiles=None)
