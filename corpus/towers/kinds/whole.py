"""Two whole towers, in which numbers are read in many places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from corpus.towers.kind import Inputs, Kind, Layouts, Tower, kind
from corpus.towers.kinds.attention import Chunked, boundaries, windows_of
from corpus.towers.kinds.layouts import GRIDS, WIDTH, images, packed
from corpus.towers.kinds.positions import in_blocks, rotated
from corpus.towers.kinds.sounds import CHUNK
from corpus.towers.kinds.tokens import IMAGE, TOKENS, text_with_images

_MERGE: Final = 2


class VisionTower(Tower):
    """Positions, windows, attention, a merger, and features that go to the tokens of images."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(WIDTH, WIDTH)
        self.layers = nn.ModuleList([Chunked(), Chunked()])
        self.merger = nn.Linear(_MERGE**2 * WIDTH, WIDTH)
        self.words = nn.Embedding(TOKENS, WIDTH)

    def _positions(self, grids: Sequence[Sequence[int]]) -> Tensor:
        return torch.cat([in_blocks(h, w, _MERGE).repeat(t, 1) for t, h, w in grids])

    def _scattered(self, ids: Tensor, features: Tensor) -> Tensor:
        mask = (ids == IMAGE).unsqueeze(-1).expand(*ids.shape, WIDTH)
        return self.words(ids).masked_scatter(mask, features)

    def forward(self, ids: Tensor, patches: Tensor, grid_thw: Tensor) -> Tensor:
        x = rotated(self.embed(patches), self._positions(grid_thw.tolist()))
        index, begins = windows_of(grid_thw.tolist())
        cu_windows = torch.unique_consecutive(torch.tensor(begins, dtype=torch.int32))
        x = self.layers[0](x[index], cu_windows)[torch.argsort(index)]
        x = self.layers[1](x, boundaries(grid_thw))
        features = self.merger(x.reshape(-1, _MERGE**2 * WIDTH))
        sizes = (grid_thw.prod(-1) // _MERGE**2).tolist()
        features = torch.cat([each - each.mean() for each in torch.split(features, sizes)])
        n_tokens = (ids == IMAGE).sum()
        if n_tokens != features.shape[0]:
            raise ValueError(f"features do not match: {n_tokens} and {features.shape[0]}")
        return self._scattered(ids, features)

    def numbers(self, ids: Tensor, patches: Tensor, grid_thw: Tensor) -> Inputs:
        index, begins = windows_of(grid_thw.tolist())
        return {
            "ids": ids,
            "patches": patches,
            "grids": grid_thw.tolist(),
            "index": index,
            "windows": torch.unique_consecutive(torch.tensor(begins)).diff().tolist(),
            "frames": boundaries(grid_thw).diff().tolist(),
        }

    def by_hand(
        self,
        ids: Tensor,
        patches: Tensor,
        grids: list[list[int]],
        index: Tensor,
        windows: list[int],
        frames: list[int],
    ) -> Tensor:
        x = rotated(self.embed(patches), self._positions(grids))
        x = self.layers[0].by_lengths(x[index], windows)[torch.argsort(index)]
        x = self.layers[1].by_lengths(x, frames)
        features = self.merger(x.reshape(-1, _MERGE**2 * WIDTH))
        sizes = [t * h * w // _MERGE**2 for t, h, w in grids]
        parts = torch.split(features, sizes)
        return self._scattered(ids, torch.cat([each - each.mean() for each in parts]))


class AudioTower(Tower):
    """Chunks are filled up, convolved, and attended to without the filling; clips are pooled."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(WIDTH, WIDTH, 3, stride=2, padding=1)
        self.layer = Chunked()

    def _convolved(self, chunks: Sequence[Tensor]) -> Tensor:
        filled = pad_sequence(list(chunks), batch_first=True).transpose(1, 2)
        return self.conv(filled).relu().transpose(1, 2)

    def forward(self, frames: Tensor, lengths: Tensor) -> list[Tensor]:
        frames = frames / frames.norm(dim=-1, keepdim=True)
        numbers = torch.ceil(lengths / CHUNK).long()
        sizes = torch.full((numbers.sum(),), CHUNK, dtype=torch.long)
        sizes[F.pad(numbers, (1, 0), value=-1).cumsum(0)[1:]] = lengths % CHUNK
        sizes = torch.where(sizes == 0, CHUNK, sizes)
        x = self._convolved(frames.split(sizes.tolist()))
        sizes = (sizes - 1) // 2 + 1
        mask = torch.arange(sizes.max().item()) < sizes.unsqueeze(1)
        x = x.reshape(-1, WIDTH)[mask.flatten().nonzero().squeeze(-1)]
        x = self.layer(x, F.pad(sizes.cumsum(0), (1, 0), value=0))
        clips = [int(each.sum()) for each in sizes.split(numbers.tolist())]
        return [each.mean(dim=0) for each in x.split(clips)]

    def numbers(self, frames: Tensor, lengths: Tensor) -> Inputs:
        clips = [
            [min(CHUNK, each - at) for at in range(0, each, CHUNK)] for each in lengths.tolist()
        ]
        return {
            "frames": frames,
            "sizes": [each for clip in clips for each in clip],
            "clips": [sum((each + 1) // 2 for each in clip) for clip in clips],
        }

    def by_hand(self, frames: Tensor, sizes: list[int], clips: list[int]) -> list[Tensor]:
        frames = frames / frames.norm(dim=-1, keepdim=True)
        chunks = self._convolved(frames.split(sizes))
        sizes = [(each + 1) // 2 for each in sizes]
        x = torch.cat([each[:size] for each, size in zip(chunks, sizes, strict=True)])
        x = self.layer.by_lengths(x, sizes)
        return [each.mean(dim=0) for each in x.split(clips)]


def _texts() -> Layouts:
    """Images, and a text with a token for each of their features."""
    return [
        {"ids": torch.tensor([text_with_images(grids)])} | of_each
        for grids, of_each in zip(GRIDS, images(), strict=True)
    ]


KINDS: Final[tuple[Kind, ...]] = (kind(VisionTower, _texts), kind(AudioTower, packed))
