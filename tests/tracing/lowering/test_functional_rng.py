"""What an arm draws amid data-dependent sizes is what eager execution draws."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.equivalence import Call, assert_equivalent, call


def _inputs() -> list[Call]:
    masks = ([1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1], [0, 0, 1, 0, 0])
    x = torch.linspace(-1.0, 1.0, 20).reshape(5, 4)
    return [call(x, torch.tensor(each, dtype=torch.bool)) for each in masks]


class _Routed(nn.Module):
    """Dropout before, in and after a branch that works on some of the rows."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.outer = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = F.dropout(x, 0.5, self.training)
        if mask.any():
            rows = mask.nonzero().squeeze(-1)
            h = F.dropout(self.inner(x[rows]), 0.3, self.training)
            x = x.index_add(0, rows, F.dropout(torch.relu(h), 0.4, self.training))
        return F.dropout(self.outer(x), 0.2, self.training)


class _BothSides(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.inner(x)
        if mask.all():
            rows = mask.nonzero().squeeze(-1)
            x = x.index_add(0, rows, F.dropout(x[rows], 0.5, self.training))
        else:
            x = x + F.dropout(x, 0.25, self.training)
            x = x.index_fill(0, mask.nonzero().squeeze(-1), 2.0)
        return x * F.dropout(torch.ones_like(x), 0.5, self.training)


class _RoutedInAnArm(nn.Module):
    """The branch on rows stands in another one, which draws before and behind it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.outer = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = F.dropout(x, 0.5, self.training)
        if not mask[1]:
            x = self.outer(F.dropout(x, 0.2, self.training))
            if mask.any():
                rows = mask.nonzero().squeeze(-1)
                h = F.dropout(self.inner(x[rows]), 0.3, self.training)
                x = x.index_add(0, rows, h)
            x = F.dropout(x, 0.2, self.training)
        return F.dropout(x, 0.25, self.training)


class _TwoInAnArm(_RoutedInAnArm):
    """In an arm one branch draws before it decides, and the other one as it goes."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.outer(x)
        if not mask[0] or mask[1]:
            chance = torch.rand([])
            if chance < 0.5:
                x = F.dropout(self.inner(x), 0.3, self.training)
            if mask.any():
                rows = mask.nonzero().squeeze(-1)
                x = x.index_add(0, rows, F.dropout(x[rows], 0.3, self.training))
            x = x + torch.randn_like(x) * torch.rand(1, 4)
        return x * torch.rand([])


class _ThreeLevels(_RoutedInAnArm):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.outer(x)
        if not mask[1]:
            if torch.rand([]) < 0.7:
                if mask.any():
                    rows = mask.nonzero().squeeze(-1)
                    x = x.index_add(0, rows, F.dropout(self.inner(x[rows]), 0.3, self.training))
                x = x * torch.randn([])
            else:
                x = self.inner(x)
        return x * torch.rand([])


_ARMS = (_Routed, _BothSides, _RoutedInAnArm, _TwoInAnArm, _ThreeLevels)


@pytest.mark.parametrize(
    ("make", "backend"),
    [
        *((make, "eager") for make in _ARMS),
        (_RoutedInAnArm, "aot_eager"),
        *(
            pytest.param(make, "aot_eager", marks=pytest.mark.slow)
            for make in _ARMS
            if make is not _RoutedInAnArm
        ),
    ],
)
def test_an_arm_draws_for_as_many_rows_as_the_data_say(make: Any, backend: str) -> None:
    assert_equivalent(
        make,
        _inputs,
        backend=backend,
        training=True,
        may_copy=True,
        zero_gradients=True,
        graphs=1,
    )


def test_the_condition_of_another_kind_of_draw_is_computed_in_front() -> None:
    def program(x: Tensor, mask: Tensor) -> Tensor:
        if mask.any():
            rows = x[mask.nonzero().squeeze(-1)]
            x = x + rows[torch.randperm(len(rows))][0]
        return x * 2

    masks = ([True, False, True, True, False], [False] * 5, [True] * 5)
    assert_equivalent(
        lambda: program,
        lambda: [call(torch.randn(5, 4), torch.tensor(each)) for each in masks],
        training=True,
        graphs=None,
        recompiles=None,
    )


def test_the_operator_draws_as_the_generator_does() -> None:
    torch.manual_seed(5)
    state = torch.ops.bcmend.generator_state()
    expected = torch.empty(7).bernoulli_(0.3), torch.empty(7).normal_(1.0, 2.0)
    after = torch.get_rng_state()
    first, state = torch.ops.bcmend.drawn_from(state, "bernoulli_", torch.zeros(7), [0.3])
    second, state = torch.ops.bcmend.drawn_from(state, "normal_", torch.zeros(7), [1.0, 2.0])
    assert torch.equal(first, expected[0])
    assert torch.equal(second, expected[1])
    assert torch.equal(state, after)
    assert torch.equal(torch.get_rng_state(), after)
