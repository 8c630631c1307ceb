"""Output that a policy keeps where it stands: who is named as its caller."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bcmend
from tests.equivalence import Call, Make, assert_equivalent, call, run_compiled

LOGGER = logging.getLogger("tests.kept")


def _kept(make: Make, options: Mapping[str, Any]) -> tuple[Any, Callable[..., Any]]:
    program = bcmend.patch(make(), policy=bcmend.Policy(output="keep"))
    return program, torch.compile(program, **options)


def _inputs() -> Sequence[Call]:
    return [call(torch.tensor([one, 1.0])) for one in (2.0, -3.0, 4.0)]


class _Noting(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x + 1 if x.sum() > 0 else x - 1
        LOGGER.warning("sum %s", y.sum().item(), stacklevel=2)
        warnings.warn("noted", UserWarning, 3)
        return y * 2


class _Around(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = _Noting()

    def forward(self, x: Tensor) -> Tensor:
        x = x * 2 if x[0] > 3 else x
        return self.inner(x) + 1


def _noting(x: Tensor, level: int) -> Tensor:
    LOGGER.warning("at level %s", level, stacklevel=level)
    return x + 1


def _calling(x: Tensor) -> Tensor:
    if x.sum() > 0:
        x = x * 2
    for level in (1, 2, 3):
        x = _noting(x, level)
    return x


def _in_an_arm(x: Tensor) -> Tensor:
    if x.sum() > 0:
        warnings.warn("positive", stacklevel=2)
        x = x + 1
    return x * 2


@pytest.mark.parametrize(
    "make",
    [_Noting, _Around, lambda: _calling, lambda: _in_an_arm],
    ids=["noting", "around", "calling", "in an arm"],
)
@pytest.mark.parametrize("training", [False, True])
def test_the_callers_of_eager_execution_are_named(make: Callable[[], Any], training: bool) -> None:
    assert_equivalent(
        make, _inputs, way=_kept, fullgraph=False, graphs=None, recompiles=None, training=training
    )


def test_where_torch_ignores_logging_the_call_stays_as_it_is() -> None:
    def program(x: Tensor) -> Tensor:
        y = x + 1 if x.sum() > 0 else x - 1
        LOGGER.warning("sum", stacklevel=2)
        return y * 2

    ignored = {logging.Logger.warning, LOGGER.warning}
    with torch._dynamo.config.patch(ignore_logging_functions=ignored):
        found = run_compiled(lambda: program, _inputs, way=_kept)
    assert found.graphs == 1
    assert all(each.raised is None and not each.events for each in found.observations)
