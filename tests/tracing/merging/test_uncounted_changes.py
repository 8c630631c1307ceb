"""Loops left early whose iterations change tensors in place, counted by autograd or not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bcmend
from tests.equivalence import Call, assert_equivalent, call

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


class Loop(nn.Module):
    """Changes a buffer in each iteration, in the way of its ``form``."""

    def __init__(self, form: str, turns: int) -> None:
        super().__init__()
        self.form, self.turns = form, turns
        self.layer, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.register_buffer("scale", torch.ones(4))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> tuple[Tensor, int]:
        for at in range(self.turns):  # noqa: B007
            x = torch.tanh(self.layer(x)) + x
            if self.form == "norm":
                x = self.norm(x) + x
            elif self.form == "number":
                x = x + self.count
                self.count.add_(1)
            elif self.form == "data that was kept":
                x = x * self.scale
                self.scale.data.add_(0.1)
            elif self.form == "data":
                self.scale.data.add_(x.detach().mean(0))
            elif self.form == "counted":
                self.scale.add_(x.detach().mean(0))
            elif self.form == "kept":
                x = x * self.scale
                self.scale.add_(0.1)
            if x.mean() > 1.5:
                break
        return x, at


def _calls() -> list[Call]:
    torch.manual_seed(2)
    rows = torch.randn(3, 4)
    return [call(rows.clone() + shift) for shift in (0.0, 1.2, 2.0, -3.0)]


_FORMS = ["norm", "number", "data", "data that was kept", "counted"]


@pytest.mark.parametrize("turns", [3, 6])
@pytest.mark.parametrize("form", _FORMS)
def test_a_buffer_is_changed_in_each_iteration(form: str, turns: int) -> None:
    assert_equivalent(lambda: Loop(form, turns), _calls, training=True)


@pytest.mark.parametrize("form", ["norm", "number"])
def test_a_back_end_traces_the_backward(form: str) -> None:
    assert_equivalent(lambda: Loop(form, 4), _calls, training=True, backend="aot_eager")


@pytest.mark.parametrize("form", _FORMS)
def test_without_gradients(form: str) -> None:
    assert_equivalent(lambda: Loop(form, 4), _calls)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["norm", "number"])
def test_with_inductor(form: str) -> None:
    assert_equivalent(lambda: Loop(form, 4), _calls, training=True, backend="inductor")


def test_what_an_earlier_iteration_has_kept_is_refused() -> None:
    torch.manual_seed(2)
    net: Any = bcmend.patch(Loop("kept", 3))
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(net, backend="eager", fullgraph=True)(torch.randn(3, 4))
    refused = [each.detail for each in bcmend.report(net).sites]
    assert any("an earlier operation has kept" in each for each in refused)
