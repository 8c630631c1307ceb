"""Audio of several clips in one row, each of which is attended to by itself."""

from __future__ import annotations

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpus.before.case import Case, Size, drawn
from corpus.before.cases.layers import Attention, Feed
from corpus.towers.kind import Layouts


class _Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.feed = Attention(width), Feed(width)

    def attended(self, x: Tensor, cu_seqlens: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor, cu_seqlens: Tensor) -> Tensor:
        x = x + self.attended(self.first(x), cu_seqlens)
        return x + self.feed(self.second(x))


class _SplitLayer(_Layer):
    def attended(self, x: Tensor, cu_seqlens: Tensor) -> Tensor:
        lengths = cu_seqlens[1:] - cu_seqlens[:-1]
        splits = [torch.split(each, lengths.tolist(), dim=-2) for each in self.attention.parts(x)]
        found = [F.scaled_dot_product_attention(*each) for each in zip(*splits, strict=True)]
        return self.attention.merged(torch.cat(found, dim=-2))


class _MaskedLayer(_Layer):
    def attended(self, x: Tensor, cu_seqlens: Tensor) -> Tensor:
        places = torch.arange(x.shape[0], device=x.device)
        clip = (places[:, None] >= cu_seqlens[None, 1:]).sum(dim=1)
        return self.attention(x, (clip[:, None] == clip[None, :])[None])


class _Clips(nn.Module):
    def __init__(self, size: Size, layer: type[_Layer]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layer(size.width) for _ in range(size.layers))

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        cu_seqlens = F.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
        for layer in self.layers:
            frames = layer(frames, cu_seqlens)
        return frames


def _split(size: Size) -> nn.Module:
    return _Clips(size, _SplitLayer)


def _masked(size: Size) -> nn.Module:
    return _Clips(size, _MaskedLayer)


def _clips(size: Size) -> Layouts:
    """One to four clips; two calls have clips of other lengths in as many frames."""
    shares = [(3, 2), (2, 3), (4,), (1, 1, 2, 3), (2, 1, 2)]
    layouts = []
    for at, each in enumerate(shares):
        lengths = torch.tensor(each) * max(1, size.rows // 2)
        layouts.append({"frames": drawn(at, int(lengths.sum()), size.width), "lengths": lengths})
    return layouts


CASES: Final = (
    Case("clips-by-split", "transformers 45816 (Qwen2.5-Omni)", _split, _masked, _clips),
)
