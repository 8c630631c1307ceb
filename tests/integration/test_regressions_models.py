"""Forms found in the code of real models, each as small as it gets."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bcmend

POSITIVE, NEGATIVE = torch.ones(4, 4), -torch.ones(4, 4)


pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


def _drop_flag(layer: nn.Linear, x: Tensor) -> Tensor:
    """Decide first, act on the decision twice: how encoders drop layers."""
    drop = False
    if x.sum() > 0:
        drop = True
    outputs = (None, None) if drop else (layer(x), None)
    if not drop:
        x = outputs[0]
    return x + 1


def _mask_or_none(layer: nn.Linear, x: Tensor) -> Tensor:
    """A mask that is empty is no mask."""
    mask = x < 0
    if not mask.any():
        mask = None
    if mask is not None:
        x = layer(x).masked_fill(mask, 7.0)
    return x + 1


def _flag_decides_the_result(layer: nn.Linear, x: Tensor) -> Tensor:
    found = None
    if x.sum() > 0:
        found = True
    if found:
        return layer(x)
    return x - 1


@pytest.mark.parametrize("program", [_drop_flag, _mask_or_none, _flag_decides_the_result])
def test_a_flag_set_by_a_branch_and_tested_after_it(program: Any) -> None:
    layer = nn.Linear(4, 4)
    expected = [program(layer, x) for x in (POSITIVE, NEGATIVE)]
    assert not torch.equal(expected[0] - POSITIVE, expected[1] - NEGATIVE)  # both ways differ
    mended = bcmend.compile(program, backend="eager", fullgraph=True)
    for x, wanted in zip((POSITIVE, NEGATIVE), expected, strict=True):
        assert torch.equal(mended(layer, x), wanted)


@pytest.mark.parametrize("x", [POSITIVE, NEGATIVE])
def test_gradients_follow_the_flag(x: Tensor) -> None:
    wanted, found = nn.Linear(4, 4), nn.Linear(4, 4)
    found.load_state_dict(wanted.state_dict())
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    mended = bcmend.compile(_drop_flag, backend="eager", fullgraph=True)
    mended(found, inputs[0]).square().sum().backward()
    bcmend.unpatch()
    _drop_flag(wanted, inputs[1]).square().sum().backward()
    assert inputs[1].grad is not None and inputs[1].grad.any()
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad, rtol=0, atol=0)
    expected = wanted.weight.grad
    if expected is None:  # the layer was dropped; a captured branch gives zeros
        expected = torch.zeros_like(wanted.weight)
    actual = found.weight.grad
    assert torch.equal(torch.zeros_like(expected) if actual is None else actual, expected)


def test_a_flag_that_both_sides_set_alike_widens_nothing() -> None:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            x, known = x * 2, True
        else:
            x, known = x - 1, True
        if known:
            print("known")
        return x

    mended = bcmend.compile(program, backend="eager", fullgraph=True)
    assert torch.equal(mended(POSITIVE), POSITIVE * 2)
    assert torch.equal(mended(NEGATIVE), NEGATIVE - 1)
