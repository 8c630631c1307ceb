"""Attention inside each image or window, and the windows themselves."""

# Models write zip without strict, and the form of their code is what is tested.
# ruff: noqa: B905

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpus.towers.kind import Inputs, Kind, Tower, kind
from corpus.towers.kinds.layouts import WIDTH, films, images, images_or_none

_WINDOW: Final = 2


def attended(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Return what rows see of each other."""
    return F.scaled_dot_product_attention(query[None], key[None], value[None])[0]


def boundaries(grid_thw: Tensor) -> Tensor:
    """Return where each frame begins, and where the last one ends."""
    seen = torch.repeat_interleave(grid_thw[:, 1] * grid_thw[:, 2], grid_thw[:, 0])
    return F.pad(seen.cumsum(dim=0, dtype=torch.int32), (1, 0), value=0)


class Heads(nn.Module):
    """The projections of one layer of attention."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Linear(WIDTH, 3 * WIDTH)
        self.outside = nn.Linear(WIDTH, WIDTH)

    def parts(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.inside(x).chunk(3, dim=-1)

    def by_lengths(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        splits = [torch.split(each, lengths) for each in self.parts(x)]
        return x + self.outside(torch.cat([attended(*each) for each in zip(*splits, strict=True)]))


class Chunked(Heads):
    """A layer that asks for the lengths itself, for each of three tensors."""

    def forward(self, x: Tensor, cu_seqlens: Tensor) -> Tensor:
        lengths = cu_seqlens[1:] - cu_seqlens[:-1]
        splits = [torch.split(each, lengths.tolist()) for each in self.parts(x)]
        return x + self.outside(torch.cat([attended(*each) for each in zip(*splits)]))


class AttentionByChunks(Tower):
    """Two layers, each of which splits by the same boundaries."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Chunked(), Chunked()])

    def forward(self, patches: Tensor, grid_thw: Tensor) -> Tensor:
        cu_seqlens = boundaries(grid_thw)
        for layer in self.layers:
            patches = layer(patches, cu_seqlens)
        return patches

    def numbers(self, patches: Tensor, grid_thw: Tensor) -> Inputs:
        return {"patches": patches, "lengths": boundaries(grid_thw).diff().tolist()}

    def by_hand(self, patches: Tensor, lengths: list[int]) -> Tensor:
        for layer in self.layers:
            patches = layer.by_lengths(patches, lengths)
        return patches


class GivenBoundaries(AttentionByChunks):
    """The same, where a caller may have computed the boundaries before."""

    def forward(self, patches: Tensor, grid_thw: Tensor, **given: Any) -> Tensor:
        cu_seqlens = given.pop("cu_seqlens", None)
        if cu_seqlens is None:
            cu_seqlens = boundaries(grid_thw)
        for layer in self.layers:
            patches = layer(patches, cu_seqlens, **given)
        return patches


class AttentionMask(Tower):
    """A mask over all patches, of which a square for each frame is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = Heads()

    def _seen(self, patches: Tensor, mask: Tensor) -> Tensor:
        query, key, value = (each[None] for each in self.layer.parts(patches))
        return self.layer.outside(F.scaled_dot_product_attention(query, key, value, mask)[0])

    def forward(self, patches: Tensor, grid_thw: Tensor) -> Tensor:
        cu_seqlens = boundaries(grid_thw)
        length = patches.shape[0]
        mask = torch.full([1, length, length], torch.finfo(patches.dtype).min)
        for at in range(1, len(cu_seqlens)):
            start, end = cu_seqlens[at - 1], cu_seqlens[at]
            mask[..., start:end, start:end] = 0
        return self._seen(patches, mask)

    def numbers(self, patches: Tensor, grid_thw: Tensor) -> Inputs:
        return {"patches": patches, "bounds": boundaries(grid_thw).tolist()}

    def by_hand(self, patches: Tensor, bounds: list[int]) -> Tensor:
        length = patches.shape[0]
        mask = torch.full([1, length, length], torch.finfo(patches.dtype).min)
        for start, end in itertools.pairwise(bounds):
            mask[..., start:end, start:end] = 0
        return self._seen(patches, mask)


class LongestChunk(Tower):
    """Each frame is filled up to the longest one, which is read once and used in each layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Heads(), Heads()])

    def _layers(self, patches: Tensor, cu_seqlens: Tensor, longest: int) -> Tensor:
        lengths = cu_seqlens[1:] - cu_seqlens[:-1]
        places = cu_seqlens[:-1, None] + torch.arange(longest)
        is_real = torch.arange(longest) < lengths[:, None]
        places = places.clamp(max=patches.shape[0] - 1)
        numbers = torch.repeat_interleave(
            torch.arange(len(lengths)), lengths, output_size=patches.shape[0]
        )
        inside = torch.arange(patches.shape[0]) - cu_seqlens[:-1][numbers]
        for layer in self.layers:
            query, key, value = (each[places] for each in layer.parts(patches))
            seen = F.scaled_dot_product_attention(query, key, value, is_real[:, None])
            patches = patches + layer.outside(seen[numbers, inside])
        return patches

    def forward(self, patches: Tensor, grid_thw: Tensor) -> Tensor:
        cu_seqlens = boundaries(grid_thw)
        longest = int((cu_seqlens[1:] - cu_seqlens[:-1]).max())
        return self._layers(patches, cu_seqlens, longest)

    def numbers(self, patches: Tensor, grid_thw: Tensor) -> Inputs:
        cu_seqlens = boundaries(grid_thw)
        longest = int(cu_seqlens.diff().max())
        return {"patches": patches, "cu_seqlens": cu_seqlens, "longest": longest}

    def by_hand(self, patches: Tensor, cu_seqlens: Tensor, longest: int) -> Tensor:
        return self._layers(patches, cu_seqlens, longest)


def windows_of(grids: Sequence[Sequence[int]]) -> tuple[Tensor, list[int]]:
    """Which patches each window has, window by window, and where each window begins."""
    index, begins, first = [], [0], 0
    for t, h, w in grids:
        places = torch.arange(t * h * w).reshape(t, h, w)
        down, across = _WINDOW - h % _WINDOW, _WINDOW - w % _WINDOW
        places = F.pad(places, (0, across, 0, down), "constant", -100)
        rows, columns = (h + down) // _WINDOW, (w + across) // _WINDOW
        places = places.reshape(t, rows, _WINDOW, columns, _WINDOW).permute(0, 1, 3, 2, 4)
        counts = (places != -100).sum([3, 4]).reshape(-1)
        places = places.reshape(-1)
        index.append(places[places != -100] + first)
        begins.extend((counts.cumsum(0) + begins[-1]).tolist())
        first += t * h * w
    return torch.cat(index), begins


class WindowIndex(Tower):
    """Patches are sorted by windows and attended to there, then in whole frames."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Chunked(), Chunked()])

    def forward(self, patches: Tensor, grid_thw: Tensor) -> Tensor:
        index, begins = windows_of(grid_thw.tolist())
        cu_windows = torch.unique_consecutive(torch.tensor(begins, dtype=torch.int32))
        patches = self.layers[0](patches[index], cu_windows)
        patches = patches[torch.argsort(index)]
        return self.layers[1](patches, boundaries(grid_thw))

    def numbers(self, patches: Tensor, grid_thw: Tensor) -> Inputs:
        index, begins = windows_of(grid_thw.tolist())
        windows = torch.unique_consecutive(torch.tensor(begins)).diff().tolist()
        frames = boundaries(grid_thw).diff().tolist()
        return {"patches": patches, "index": index, "windows": windows, "frames": frames}

    def by_hand(
        self, patches: Tensor, index: Tensor, windows: list[int], frames: list[int]
    ) -> Tensor:
        patches = self.layers[0].by_lengths(patches[index], windows)
        return self.layers[1].by_lengths(patches[torch.argsort(index)], frames)


KINDS: Final[tuple[Kind, ...]] = (
    kind(AttentionByChunks, films),
    kind(GivenBoundaries, images),
    kind(AttentionMask, images_or_none),
    kind(LongestChunk, films),
    kind(WindowIndex, images),
)
