"""What an arm has detached has no history behind a branch that runs one arm alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.equivalence import assert_equivalent, call


class _Keeps(nn.Module):
    """Keeps what the last call that took the branch has seen, which an index may fail to make."""

    def __init__(self) -> None:
        super().__init__()
        self.last = torch.zeros(3)

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        if x.sum() > 0:
            self.last = x[ids].detach()
            y = x[ids] * 2
        else:
            y = x - 1
        return y + self.last


def _calls() -> list[Any]:
    ids = torch.tensor([2, 0, 1])
    values = ([1.0, 2.0, 3.0], [-1.0, -2.0, 0.5], [4.0, 0.0, 1.0])
    return [call(torch.tensor(each), ids) for each in values]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_detached_tensor_that_is_kept_requires_no_gradients(backend: str) -> None:
    found = assert_equivalent(
        _Keeps, _calls, backend=backend, training=True, recompiles=None, graphs=None
    )
    assert found.report is not None
    lowerings = [site.lowering or "" for site in found.report.sites]
    assert any("cond" in each for each in lowerings)
