"""Tensors from outside the call that are told to have gradients: a first call does it for all."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import bcmend
from bcmend.tracing.search import log
from bcmend.tracing.search.assumptions import Claim
from tests.equivalence import Call, assert_equivalent, call

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


class Zero(nn.Module):
    """Adds to a buffer that is told to have gradients, as sums of losses are begun."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.register_buffer("zero", torch.tensor(0.0), persistent=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.layer(x)
        x = x * 2 if x.sum() > 0 else x - 1
        loss = self.zero
        if self.training:
            loss.requires_grad_()
        return x, loss + x.pow(2).mean()


def test_a_buffer_that_is_told_to_have_gradients() -> None:
    def calls() -> list[Call]:
        return [call(torch.full((2, 3), each)) for each in (1.0, -3.0, 2.0, 1.0)]

    # The first call is made in plain Python.
    assert_equivalent(Zero, calls, training=True, recompiles=1)
    assert_equivalent(Zero, calls)


def test_no_trace_looks_for_a_substitute_where_a_buffer_is_told_so() -> None:
    model = bcmend.patch(Zero().train())
    code = Zero.forward.__code__
    try:
        torch.compile(model, backend="eager", fullgraph=True)(torch.ones(2, 3))
        claims = [each.claim for trace in log.traces([code]) for each in trace.findings]
    finally:
        bcmend.unpatch(model)
        torch._dynamo.reset()
    assert Claim.SETTLED in claims
    assert Claim.WRITES_NOTHING not in claims


def test_an_argument_that_each_call_tells_so() -> None:
    def program(x: Tensor) -> Tensor:
        x = x.clone() if x.sum() > 100 else x
        x.requires_grad_()
        return x * 2

    def calls() -> list[Call]:
        return [call(torch.full((3,), each)) for each in (1.0, 2.0, 3.0, 4.0)]

    assert_equivalent(lambda: program, calls, fullgraph=False, graphs=None, recompiles=None)
