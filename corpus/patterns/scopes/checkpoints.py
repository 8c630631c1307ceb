"""Branches in layers that are computed again for the backward pass."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from corpus.patterns.pattern import COND, pattern, patterns_among, signs


@pattern(signs, COND, zero_gradients=True)
def checkpointed_layer_with_two_expensive_arms() -> nn.Module:
    def stack() -> nn.Module:
        return nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64), nn.Linear(64, 3))

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = stack(), stack()

        def forward(self, x: Tensor) -> Any:
            return self.one(x) if x.sum() > 0 else self.other(x)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = Layer()

        def forward(self, x: Tensor) -> Any:
            return x + checkpoint(self.layer, x, use_reentrant=False)

    return Net()


PATTERNS = patterns_among(list(vars().values()))
