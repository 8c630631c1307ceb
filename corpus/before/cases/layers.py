"""Layers that both forms of a case are made of."""

from __future__ import annotations

from typing import Final

import torch.nn.functional as F
from torch import Tensor, nn

HEADS: Final = 4


class Attention(nn.Module):
    """Attention over samples of rows, with a mask that may be given."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inside = nn.Linear(width, 3 * width)
        self.outside = nn.Linear(width, width)

    def parts(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return queries, keys and values, by heads: [..., heads, rows, features]."""
        heads = self.inside(x).unflatten(-1, (3, HEADS, -1))
        return tuple(each.transpose(-3, -2) for each in heads.unbind(-3))

    def merged(self, x: Tensor) -> Tensor:
        """Return the output for what the heads have found."""
        return self.outside(x.transpose(-3, -2).flatten(-2))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.merged(F.scaled_dot_product_attention(*self.parts(x), attn_mask=mask))


class Feed(nn.Module):
    """Two linear layers."""

    def __init__(self, width: int, outputs: int | None = None) -> None:
        super().__init__()
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, outputs or width)

    def forward(self, x: Tensor) -> Tensor:
        return self.narrow(F.silu(self.wide(x)))


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.feed = Attention(width), Feed(width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = x + self.attention(self.first(x), mask)
        return x + self.feed(self.second(x))
