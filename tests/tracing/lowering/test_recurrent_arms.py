"""Recurrent layers in arms: ``torch.cond`` has no backward of torch's, but of bcmend's operators.

Under autocast they are torch's, and ``torch.where`` takes the arm.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import bcmend

MAKERS: dict[str, Callable[[], nn.Module]] = {
    "gru": lambda: nn.GRU(4, 4, batch_first=True),
    "lstm": lambda: nn.LSTM(4, 4, num_layers=2, batch_first=True),
    "rnn": lambda: nn.RNN(4, 4, batch_first=True),
}


class Net(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.linear = layer, nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            x, _ = self.layer(x)
        return self.linear(x)


pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


def _step(net: nn.Module, called: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor | None]:
    net.zero_grad()
    x = x.clone().requires_grad_()
    result = called(x)
    result.pow(2).sum().backward()  # type: ignore[no-untyped-call]
    return [result.detach(), x.grad, *(each.grad for each in net.parameters())]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("kind", MAKERS)
def test_a_recurrent_layer_in_an_arm_has_the_gradients_of_eager_execution(
    kind: str, backend: str
) -> None:
    torch.manual_seed(0)
    net = Net(MAKERS[kind]())
    x = torch.randn(2, 3, 4).abs()
    expected = [_step(net, net, sign * x) for sign in (1, -1)]
    compiled = torch.compile(bcmend.patch(net), backend=backend, fullgraph=True)
    for sign, call in zip((1, -1), expected, strict=True):
        for one, other in zip(_step(net, compiled, sign * x), call, strict=True):
            assert (one is None) == (other is None)
            if one is not None and other is not None:
                assert torch.allclose(one, other, atol=1e-6)
    (site,) = bcmend.report(net).sites
    assert str(site.lowering).endswith("cond")


class Called(nn.Module):
    """A layer's function in an arm, called by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.inward, self.onward = nn.Linear(4, 12), nn.Linear(4, 12)

    def forward(self, x: Tensor) -> Tensor:
        inward, onward = self.inward, self.onward
        if x.sum() > 0:
            weights = [inward.weight, onward.weight, inward.bias, onward.bias]
            x = torch.gru(x, x.new_zeros(1, 2, 4), weights, True, 1, 0.0, True, False, True)[0]
        return x * 2


def test_under_autocast_the_layer_is_that_of_torch() -> None:
    torch.manual_seed(0)
    net = Called()
    x = torch.randn(2, 3, 4).abs()
    compiled = torch.compile(bcmend.patch(net), backend="eager", fullgraph=True)
    with torch.autocast("cpu", torch.bfloat16):
        for sign in (1, -1):
            found, expected = _step(net, compiled, sign * x), _step(net, net, sign * x)
            for one, other in zip(found, expected, strict=True):
                assert (one is None) == (other is None)
                if one is not None and other is not None:
                    assert one.dtype == other.dtype
                    assert torch.allclose(one, other, atol=1e-2)  # bfloat16, summed in steps
    (site,) = bcmend.report(net).sites
    assert "torch.cond has no backward of" in site.detail


def test_without_gradients_the_side_not_taken_does_not_run() -> None:
    net = Net(MAKERS["gru"]())
    x = torch.randn(2, 3, 4)
    with torch.no_grad():
        compiled = torch.compile(bcmend.patch(net), backend="eager", fullgraph=True)
        assert torch.allclose(compiled(x), net(x))
    (site,) = bcmend.report(net).sites
    assert str(site.lowering).endswith("cond")
