"""Layers in half precision that clamp numbers when one of them is not finite."""

from __future__ import annotations

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpus.before.case import Case, Size, drawn
from corpus.before.cases.layers import Block, Feed
from corpus.towers.kind import Layouts


class ClampedIfNotFinite(nn.Module):
    """Each layer asks whether a number overflowed."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(size.width).half() for _ in range(size.layers))

    def forward(self, hidden: Tensor) -> Tensor:
        for layer in self.layers:
            hidden = self.clamped(layer(hidden))
        return hidden

    def clamped(self, hidden: Tensor) -> Tensor:
        if hidden.dtype == torch.float16 and (
            torch.isinf(hidden).any() or torch.isnan(hidden).any()
        ):
            clamp_value = torch.finfo(hidden.dtype).max - 1000
            hidden = torch.clamp(hidden, min=-clamp_value, max=clamp_value)
        return hidden


class AlwaysClamped(ClampedIfNotFinite):
    """Each layer clamps; finite numbers stay what they are where all are finite."""

    def clamped(self, hidden: Tensor) -> Tensor:
        clamp_value = torch.finfo(hidden.dtype).max - 1000
        clamped = torch.clamp(hidden, min=-clamp_value, max=clamp_value)
        return torch.where(torch.isfinite(hidden).all(), hidden, clamped)


def cast_overflow_tensors(tensors: Tensor, offset: float = 1000) -> Tensor:
    """Clamp a tensor if a number in it overflowed."""
    if tensors.isinf().any() or tensors.isnan().any():
        clamp_value = torch.finfo(tensors.dtype).max - offset
        tensors = torch.clamp(tensors, min=-clamp_value, max=clamp_value)
    return tensors


class CastOverflow(nn.Module):
    """A function does it, for whatever type."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.feeds = nn.ModuleList(Feed(size.width) for _ in range(size.layers))

    def cast(self, x: Tensor) -> Tensor:
        return cast_overflow_tensors(x)

    def forward(self, x: Tensor) -> Tensor:
        for feed in self.feeds:
            x = self.cast(F.layer_norm(x, x.shape[-1:]) + x + feed(x))
        return x


class CastAlways(CastOverflow):
    """The same, where a select takes the place of the branch."""

    def cast(self, x: Tensor) -> Tensor:
        clamp_value = torch.finfo(x.dtype).max - 1000
        clamped = torch.clamp(x, min=-clamp_value, max=clamp_value)
        return torch.where(x.isinf().any() | x.isnan().any(), clamped, x)


def _halves(size: Size) -> Layouts:
    layouts = [drawn(at, 2, size.rows, size.width).half() for at in range(5)]
    layouts[1][0, 0, 0] = float("inf")
    layouts[3][1, 1, 1] = -float("inf")
    return [{"hidden": each} for each in layouts]


def _floats(size: Size) -> Layouts:
    layouts = [drawn(at, 2 * size.rows, size.width) for at in range(5)]
    layouts[2][0, 0] = float("inf")
    layouts[4][1, 1] = float("nan")
    return [{"x": each} for each in layouts]


CASES: Final = (
    Case("clamp-if-not-finite", "transformers Whisper", ClampedIfNotFinite, AlwaysClamped, _halves),
    Case("cast-overflow-tensors", "vllm, pytorch 180406", CastOverflow, CastAlways, _floats),
)
