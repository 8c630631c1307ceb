"""Features of patches made those of an image: split, merged, pooled, cut to size."""

# Models write zip without strict, and the form of their code is what is tested.
# ruff: noqa: B905

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

import torch
from torch import Tensor, nn

from corpus.towers.kind import Inputs, Kind, Layouts, Tower, kind
from corpus.towers.kinds.layouts import (
    FILMS,
    WIDTH,
    as_grids,
    drawn,
    films,
    images,
    images_or_none,
)

Grids = Sequence[Sequence[int]]

_MERGE: Final = 2


class _Merging(Tower):
    """What these towers have in common: a layer, and grids that are handed in as lists."""

    def __init__(self, wide: int = WIDTH) -> None:
        super().__init__()
        self.layer = nn.Linear(wide, WIDTH)

    def numbers(self, patches: Tensor, grid_thw: Tensor) -> Inputs:
        return {"patches": patches, "grids": grid_thw.tolist()}


class SplitFeatures(_Merging):
    """All features are computed at once and handed out as a tuple, a tensor for each image."""

    def __init__(self) -> None:
        super().__init__(_MERGE**2 * WIDTH)

    def _merged(self, patches: Tensor) -> Tensor:
        return self.layer(patches.reshape(-1, _MERGE**2 * WIDTH))

    def forward(self, patches: Tensor, grid_thw: Tensor) -> tuple[Tensor, ...]:
        features = self._merged(patches)
        sizes = (grid_thw.prod(-1) // _MERGE**2).tolist()
        return torch.split(features, sizes)

    def numbers(self, patches: Tensor, grid_thw: Tensor) -> Inputs:
        return {"patches": patches, "sizes": (grid_thw.prod(-1) // _MERGE**2).tolist()}

    def by_hand(self, patches: Tensor, sizes: list[int]) -> tuple[Tensor, ...]:
        return torch.split(self._merged(patches), sizes)


class PatchMerger(_Merging):
    """Each image is a square of its own again, of which blocks become rows."""

    def __init__(self) -> None:
        super().__init__(_MERGE**2 * WIDTH)

    def _of_one(self, patches: Tensor, height: int, width: int) -> Tensor:
        grid = patches.view(height, width, WIDTH).permute(2, 0, 1)[None]
        blocks = nn.functional.unfold(grid, kernel_size=_MERGE, stride=_MERGE)
        return blocks.view(WIDTH * _MERGE**2, -1).t()

    def forward(self, patches: Tensor, grid_thw: Tensor) -> Tensor:
        patches = patches / patches.norm(dim=-1, keepdim=True)
        sizes = [(int(size[1]), int(size[2])) for size in grid_thw]
        counts = [height * width for height, width in sizes]
        merged = []
        for at, tokens in enumerate(patches.split(counts)):
            height, width = sizes[at]
            merged.append(self._of_one(tokens, height, width))
        return self.layer(torch.cat(merged))

    def by_hand(self, patches: Tensor, grids: Grids) -> Tensor:
        patches = patches / patches.norm(dim=-1, keepdim=True)
        parts = patches.split([h * w for _, h, w in grids])
        merged = [self._of_one(each, h, w) for each, (_, h, w) in zip(parts, grids, strict=True)]
        return self.layer(torch.cat(merged))


class PixelShuffle(_Merging):
    """An index sorts the patches of each frame by blocks, which become rows."""

    def __init__(self) -> None:
        super().__init__(_MERGE**2 * WIDTH)

    def _of_one(self, frames: int, height: int, width: int) -> Tensor:
        blocks = (height // _MERGE, _MERGE, width // _MERGE, _MERGE)
        order = torch.arange(height * width).view(blocks).permute(0, 2, 1, 3).reshape(-1)
        if frames > 1:
            firsts = (torch.arange(frames) * height * width).view(frames, 1)
            order = (order[None] + firsts).reshape(-1)
        return order

    def forward(self, patches: Tensor, grid_thw: Tensor) -> Tensor:
        patches, indices, first = patches.tanh(), [], 0
        for frames, height, width in grid_thw.tolist():
            indices.append(self._of_one(frames, height, width) + first)
            first += frames * height * width
        return self.layer(patches[torch.cat(indices)].reshape(-1, _MERGE**2 * WIDTH))

    def by_hand(self, patches: Tensor, grids: Grids) -> Tensor:
        patches, indices, first = patches.tanh(), [], 0
        for grid in grids:
            indices.append(self._of_one(*grid) + first)
            first += grid[0] * grid[1] * grid[2]
        return self.layer(patches[torch.cat(indices)].reshape(-1, _MERGE**2 * WIDTH))


class TemporalPooling(_Merging):
    """The frames of a film become one, by a slice that begins where the last one ended."""

    def _of_one(self, frames: Tensor, t: int, h: int, w: int) -> Tensor:
        blocks = frames.view(t, h // _MERGE, _MERGE, w // _MERGE, _MERGE, WIDTH)
        pooled = blocks.transpose(2, 3).mean(dim=0)
        return pooled.reshape((h // _MERGE) * (w // _MERGE), _MERGE**2, WIDTH)

    def forward(self, patches: Tensor, grid_thw: Tensor) -> Tensor:
        patches, found, first = self.layer(patches), [], 0
        for t, h, w in grid_thw.tolist():
            found.append(self._of_one(patches[first : first + t * h * w], t, h, w))
            first += t * h * w
        return torch.cat(found)

    def by_hand(self, patches: Tensor, grids: Grids) -> Tensor:
        patches, found, first = self.layer(patches), [], 0
        for t, h, w in grids:
            found.append(self._of_one(patches[first : first + t * h * w], t, h, w))
            first += t * h * w
        return torch.cat(found)


class FramesOfFilms(_Merging):
    """Frames have so many patches, and films so many frames: one list is split by another."""

    def forward(self, patches: Tensor, per_frame: Tensor, per_film: Tensor) -> list[Tensor]:
        features = self.layer(patches)
        sizes = [int(frames.sum()) for frames in torch.split(per_frame, per_film.tolist())]
        return [each.mean(dim=0) for each in torch.split(features, sizes)]

    def numbers(self, patches: Tensor, per_frame: Tensor, per_film: Tensor) -> Inputs:
        frames = torch.split(per_frame, per_film.tolist())
        return {"patches": patches, "sizes": [int(each.sum()) for each in frames]}

    def by_hand(self, patches: Tensor, sizes: list[int]) -> list[Tensor]:
        return [each.mean(dim=0) for each in torch.split(self.layer(patches), sizes)]


class GridsOfTexts(_Merging):
    """Texts have so many images: grids are split by text, then features by the grids of each."""

    def forward(self, patches: Tensor, grid_thw: Tensor, per_text: Tensor) -> list[Tensor]:
        features, found, first = self.layer(patches), [], 0
        for grids in torch.split(grid_thw, per_text.tolist()):
            total = sum(grids.prod(-1).tolist())
            found.append(features[first : first + total].sum(dim=0) / max(len(grids), 1))
            first += total
        return found

    def numbers(self, patches: Tensor, grid_thw: Tensor, per_text: Tensor) -> Inputs:
        counts = per_text.tolist()
        totals = [int(each.prod(-1).sum()) for each in torch.split(grid_thw, counts)]
        return {"patches": patches, "counts": counts, "totals": totals}

    def by_hand(self, patches: Tensor, counts: list[int], totals: list[int]) -> list[Tensor]:
        features, found, first = self.layer(patches), [], 0
        for count, total in zip(counts, totals, strict=True):
            found.append(features[first : first + total].sum(dim=0) / max(count, 1))
            first += total
        return found


class LevelsOfFeatures(_Merging):
    """Features of all levels of a pyramid behind each other become images again, level by level."""

    def _of_one(self, features: Tensor, height: int, width: int) -> Tensor:
        return features.transpose(0, 1).reshape(WIDTH, height, width).mean(dim=(1, 2))

    def forward(self, patches: Tensor, grid_thw: Tensor) -> Tensor:
        values, shapes = self.layer(patches), grid_thw[:, 1:]
        parts = values.split([height * width for height, width in shapes.tolist()], dim=0)
        found = []
        for level, (height, width) in enumerate(shapes.tolist()):
            found.append(self._of_one(parts[level], height, width))
        return torch.stack(found)

    def by_hand(self, patches: Tensor, grids: Grids) -> Tensor:
        parts = self.layer(patches).split([h * w for _, h, w in grids], dim=0)
        levels = zip(parts, grids, strict=True)
        return torch.stack([self._of_one(each, h, w) for each, (_, h, w) in levels])


class RowSeparators(_Merging):
    """A learned token behind each row, and one in front of each image and behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.newline = nn.Parameter(torch.randn(WIDTH))
        self.border = nn.Parameter(torch.randn(2, WIDTH))

    def _of_one(self, patches: Tensor, h: int, w: int) -> Tensor:
        rows = torch.cat([patches.view(h, w, WIDTH), self.newline.expand(h, 1, WIDTH)], dim=1)
        return torch.cat([self.border[:1], rows.flatten(0, 1), self.border[1:]])

    def forward(self, patches: Tensor, grid_thw: Tensor) -> tuple[Tensor, ...]:
        items = torch.split(self.layer(patches), grid_thw.prod(dim=-1).tolist())
        found = []
        for grid, item in zip(grid_thw.tolist(), items):
            _, h, w = grid
            found.append(self._of_one(item, h, w))
        sizes = (grid_thw[:, 1] * (grid_thw[:, 2] + 1) + 2).tolist()
        return torch.split(torch.cat(found), sizes)

    def by_hand(self, patches: Tensor, grids: Grids) -> tuple[Tensor, ...]:
        items = torch.split(self.layer(patches), [h * w for _, h, w in grids])
        found = [self._of_one(each, h, w) for each, (_, h, w) in zip(items, grids, strict=True)]
        return torch.split(torch.cat(found), [h * (w + 1) + 2 for _, h, w in grids])


class Unpadding(Tower):
    """Images were filled up to squares; the margins are cut off by the original sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.newline = nn.Parameter(torch.randn(WIDTH))

    def _cut(self, square: Tensor, size: Tensor | Sequence[int]) -> Tensor:
        if not isinstance(size, (list, tuple)):
            size = size.tolist()
        height, width = size
        side, other = square.shape[1:]
        if width / height > other / side:
            margin = (side - int(round(height * (other / width), 7))) // 2
            return square[:, margin : side - margin, :]
        margin = (other - int(round(width * (side / height), 7))) // 2
        return square[:, :, margin : other - margin]

    def _of_one(self, features: Tensor, size: Tensor | Sequence[int]) -> Tensor:
        cut = self._cut(features.view(6, 6, WIDTH).permute(2, 0, 1), size)
        ends = self.newline[:, None, None].expand(*cut.shape[:-1], 1)
        return torch.cat([cut, ends], dim=-1).flatten(1, 2).transpose(0, 1)

    def forward(self, features: Tensor, sizes: Tensor) -> tuple[list[Tensor], Tensor]:
        features = self.layer(features)
        found, lengths = [], []
        for at, each in enumerate(features):
            cut = self._of_one(each, sizes[at])
            found.append(cut)
            lengths.append(cut.size(0))
        return found, torch.tensor(lengths)

    def numbers(self, features: Tensor, sizes: Tensor) -> Inputs:
        return {"features": features, "sizes": sizes.tolist()}

    def by_hand(self, features: Tensor, sizes: Grids) -> tuple[list[Tensor], Tensor]:
        features = self.layer(features)
        found = [self._of_one(each, size) for each, size in zip(features, sizes, strict=True)]
        return found, torch.tensor([each.size(0) for each in found])


class TilesOfImages(Tower):
    """The best of some resolutions says how many tiles an image has, each of so many features."""

    _RESOLUTIONS: Final = ((1, 2), (2, 1), (2, 2), (1, 3))

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def _best(self, height: int, width: int) -> tuple[int, int]:
        best, most, least = (1, 1), -1, 10**6
        for rows, columns in self._RESOLUTIONS:
            scale = min(columns * 6 / width, rows * 6 / height)
            used = min(int(width * scale) * int(height * scale), width * height)
            wasted = rows * columns * 36 - used
            if used > most or (used == most and wasted < least):
                best, most, least = (rows, columns), used, wasted
        return best

    def _joined(self, tiles: Tensor, rows: int, columns: int) -> Tensor:
        grid = tiles[1:].view(rows, columns, 2, 2, WIDTH).permute(4, 0, 2, 1, 3)
        return torch.cat([tiles[0], grid.flatten(1, 2).flatten(2, 3).flatten(1).T])

    def forward(self, tiles: Tensor, sizes: Tensor) -> Tensor:
        shapes = [self._best(*size.tolist()) for size in sizes]
        real = [each[: rows * columns + 1] for each, (rows, columns) in zip(tiles, shapes)]
        features = self.layer(torch.cat(real, dim=0))
        parts = torch.split(features, [rows * columns + 1 for rows, columns in shapes])
        return torch.cat([self._joined(each, *shape) for each, shape in zip(parts, shapes)])

    def numbers(self, tiles: Tensor, sizes: Tensor) -> Inputs:
        return {"tiles": tiles, "shapes": [self._best(*each) for each in sizes.tolist()]}

    def by_hand(self, tiles: Tensor, shapes: Sequence[tuple[int, int]]) -> Tensor:
        counts = [rows * columns + 1 for rows, columns in shapes]
        real = [each[:count] for each, count in zip(tiles, counts, strict=True)]
        parts = torch.split(self.layer(torch.cat(real, dim=0)), counts)
        return torch.cat([self._joined(a, *b) for a, b in zip(parts, shapes, strict=True)])


def _films_of_frames() -> Layouts:
    """Frames with so many patches, films with so many frames, in the sizes of FILMS."""
    return [
        {
            "patches": drawn(sum(map(prod, sizes)), WIDTH),
            "per_frame": torch.tensor([h * w for t, h, w in sizes for _ in range(t)]),
            "per_film": torch.tensor([t for t, _, _ in sizes]),
        }
        for sizes in FILMS
    ]


def _texts() -> Layouts:
    """Texts with images: the last one of each call has none."""
    per_text = ([1, 1, 0], [1, 0], [2, 1, 2, 0], [2, 0], [0, 3, 0])
    return [
        each | {"per_text": torch.tensor(counts)}
        for each, counts in zip(images(), per_text, strict=True)
    ]


def _squares() -> Layouts:
    """Features of squares, and the sizes of the images in them: wide, high and square ones."""
    sizes = ([(4, 8), (8, 3)], [(6, 6)], [(2, 6), (6, 2), (5, 7), (9, 3), (4, 4)])
    more = ([(3, 8), (8, 8)], [(7, 2), (2, 7), (8, 5)])
    return [
        {"features": drawn(len(each), 36, WIDTH), "sizes": torch.tensor(each)}
        for each in (*sizes, *more)
    ]


def _tiles() -> Layouts:
    """Up to five tiles for each image, of which some are filled up, and sizes of the images."""
    sizes = ([(6, 12), (12, 6)], [(12, 12)], [(6, 18), (6, 12), (9, 9), (12, 7), (6, 6)])
    more = ([(12, 12), (6, 20)], [(12, 5), (6, 18), (7, 12)])
    return [
        {"tiles": drawn(len(each), 5, 4, WIDTH), "sizes": torch.tensor(each)}
        for each in (*sizes, *more)
    ]


def _some_empty() -> Layouts:
    """Images as in other calls, none, and one of no row, which leaves an empty part."""
    empty = ((1, 4, 4), (1, 0, 4), (1, 2, 2))
    total = sum(map(prod, empty))
    return [*images_or_none(), {"patches": drawn(total, WIDTH), "grid_thw": as_grids(empty)}]


KINDS: Final[tuple[Kind, ...]] = (
    kind(SplitFeatures, _some_empty),
    kind(PatchMerger, images),
    kind(PixelShuffle, films),
    kind(TemporalPooling, films),
    kind(FramesOfFilms, _films_of_frames),
    kind(GridsOfTexts, _texts),
    kind(LevelsOfFeatures, images),
    kind(RowSeparators, images),
    kind(Unpadding, _squares),
    kind(TilesOfImages, _tiles),
)
