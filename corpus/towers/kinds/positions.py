"""Positions of patches, image by image."""

# Models write zip without strict, and the form of their code is what is tested.
# ruff: noqa: B905

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpus.towers.kind import Inputs, Kind, Layouts, Tower, kind
from corpus.towers.kinds.layouts import GRIDS, WIDTH, drawn, films, films_or_none, images

Grids = Sequence[Sequence[int]]

_SIDE: Final = 4
_MERGE: Final = 2


def rotated(x: Tensor, places: Tensor) -> Tensor:
    """Turn a row of `x` by angles that belong to its row and its column."""
    frequencies = torch.tensor([1.0, 0.1])
    angles = (places[:, :, None] * frequencies).flatten(1).repeat(1, 2)
    left, right = x.chunk(2, dim=-1)
    return x * angles.cos() + torch.cat([-right, left], dim=-1) * angles.sin()


def in_blocks(height: int, width: int, size: int) -> Tensor:
    """Rows and columns of an image, block by block."""
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    shape = (height // size, size, width // size, size)
    flat = [each.reshape(shape).transpose(1, 2).flatten() for each in (rows, columns)]
    return torch.stack(flat, dim=-1)


class _OfImages(Tower):
    """What these towers have in common: a layer, and grids that are handed in as lists."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def numbers(self, patches: Tensor, grid_thw: Tensor) -> Inputs:
        return {"patches": patches, "grids": grid_thw.tolist()}


class RotaryPositions(_OfImages):
    """Rows and columns of patches, in blocks of a size that each image has of its own."""

    def forward(self, patches: Tensor, grid_thw: Tensor, sizes: Tensor) -> Tensor:
        patches, places = self.layer(patches), []
        for (t, h, w), size in zip(grid_thw.tolist(), sizes.tolist()):
            places.append(in_blocks(h, w, size).repeat(t, 1))
        return rotated(patches, torch.cat(places))

    def numbers(self, patches: Tensor, grid_thw: Tensor, sizes: Tensor) -> Inputs:
        return {"patches": patches, "grids": grid_thw.tolist(), "sizes": sizes.tolist()}

    def by_hand(self, patches: Tensor, grids: Grids, sizes: list[int]) -> Tensor:
        places = [
            in_blocks(h, w, size).repeat(t, 1) for (t, h, w), size in zip(grids, sizes, strict=True)
        ]
        return rotated(self.layer(patches), torch.cat(places))


class RotaryTable(_OfImages):
    """Angles out of a table that is as long as the longest side of an image."""

    def _turned(self, patches: Tensor, table: Tensor, places: Tensor) -> Tensor:
        angles = table[places].flatten(1)
        return patches * torch.cat([angles.cos(), angles.sin()], dim=-1)

    def forward(self, patches: Tensor, grid_thw: Tensor) -> Tensor:
        patches = self.layer(patches)
        longest = int(grid_thw[:, 1:].max().item())
        table = torch.outer(torch.arange(longest), torch.tensor([1.0, 0.1]))
        places = [in_blocks(h, w, _MERGE).repeat(t, 1) for t, h, w in grid_thw.tolist()]
        return self._turned(patches, table, torch.cat(places))

    def by_hand(self, patches: Tensor, grids: Grids) -> Tensor:
        longest = max(max(h, w) for _, h, w in grids)
        table = torch.outer(torch.arange(longest), torch.tensor([1.0, 0.1]))
        places = [in_blocks(h, w, _MERGE).repeat(t, 1) for t, h, w in grids]
        return self._turned(self.layer(patches), table, torch.cat(places))


class InterpolatedPositions(_OfImages):
    """A square of learned positions, read between its items by lines of equal distances."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Embedding(_SIDE * _SIDE, WIDTH)

    def _of_one(self, t: int, h: int, w: int) -> Tensor:
        rows, columns = torch.linspace(0, _SIDE - 1, h), torch.linspace(0, _SIDE - 1, w)
        above, left = rows.int(), columns.int()
        below, right = (above + 1).clip(max=_SIDE - 1), (left + 1).clip(max=_SIDE - 1)
        down, across = rows - above, columns - left
        corners = (
            (above, left, 1 - down, 1 - across),
            (above, right, 1 - down, across),
            (below, left, down, 1 - across),
            (below, right, down, across),
        )
        parts = [
            self.positions((row[:, None] * _SIDE + column[None]).flatten())
            * (one[:, None] * other[None]).reshape(-1, 1)
            for row, column, one, other in corners
        ]
        return (parts[0] + parts[1] + parts[2] + parts[3]).repeat(t, 1)

    def forward(self, patches: Tensor, grid_thw: Tensor) -> Tensor:
        frames, heights, widths = grid_thw[:, 0], grid_thw[:, 1], grid_thw[:, 2]
        patches, found = self.layer(patches), []
        for t, h, w in zip(frames.tolist(), heights.tolist(), widths.tolist()):
            found.append(self._of_one(t, h, w))
        return patches + torch.cat(found)

    def by_hand(self, patches: Tensor, grids: Grids) -> Tensor:
        return self.layer(patches) + torch.cat([self._of_one(*each) for each in grids])


class RepeatedSizes(_OfImages):
    """The row of each patch, of all images at once: each size is repeated for each patch."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Embedding(_SIDE, WIDTH)

    def forward(self, patches: Tensor, grid_thw: Tensor) -> Tensor:
        counts = grid_thw[:, 0] * grid_thw[:, 1] * grid_thw[:, 2]
        heights = torch.repeat_interleave(grid_thw[:, 1], counts)
        widths = torch.repeat_interleave(grid_thw[:, 2], counts)
        starts = torch.repeat_interleave(counts.cumsum(0) - counts, counts)
        within = (torch.arange(counts.sum()) - starts) % (heights * widths)
        row = (within // widths) * (_SIDE - 1) // (heights - 1).clamp(min=1)
        return self.layer(patches + self.positions(row))

    def by_hand(self, patches: Tensor, grids: Grids) -> Tensor:
        rows = [torch.arange(0)]
        for t, h, w in grids:
            of_frame = torch.arange(h).repeat_interleave(w)
            rows.append(of_frame.repeat(t) * (_SIDE - 1) // max(h - 1, 1))
        return self.layer(patches + self.positions(torch.cat(rows)))


class ResizedTable(Tower):
    """A square of learned positions, resized for each image and stored beside each other."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.positions = nn.Parameter(torch.randn(_SIDE, _SIDE, WIDTH))

    def _resized(self, height: int, width: int) -> Tensor:
        table = self.positions.permute(2, 0, 1)[None]
        resized = F.interpolate(table, size=(height, width), mode="bilinear", align_corners=False)
        return resized.reshape(WIDTH, height * width).transpose(0, 1)

    def forward(self, patches: Tensor, shapes: Tensor) -> Tensor:
        patches = self.layer(patches)
        found = torch.empty(patches.shape)
        for at in range(len(shapes)):
            height, width = shapes[at].tolist()
            resized = self._resized(height, width)
            found[at, : height * width] = resized
            found[at, height * width :] = resized[0]
        return patches * found

    def numbers(self, patches: Tensor, shapes: Tensor) -> Inputs:
        return {"patches": patches, "shapes": shapes.tolist()}

    def by_hand(self, patches: Tensor, shapes: Grids) -> Tensor:
        patches = self.layer(patches)
        found = torch.empty(patches.shape)
        for at, (height, width) in enumerate(shapes):
            resized = self._resized(height, width)
            found[at, : height * width] = resized
            found[at, height * width :] = resized[0]
        return patches * found


class NearestBuckets(_OfImages):
    """The nearest item of a square of learned positions, by fractions of an image's sides."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Embedding(_SIDE * _SIDE, WIDTH)

    def _of_one(self, height: int, width: int) -> Tensor:
        bounds = torch.arange(1 / _SIDE, 1.0, 1 / _SIDE)
        rows = torch.bucketize(torch.arange(height) / height, bounds, right=True)
        columns = torch.bucketize(torch.arange(width) / width, bounds, right=True)
        return (rows[:, None] * _SIDE + columns).flatten()

    def forward(self, patches: Tensor, grid_thw: Tensor) -> Tensor:
        patches, places = self.layer(patches), []
        for height, width in grid_thw[:, 1:].tolist():
            height, width = int(height), int(width)
            places.append(self._of_one(height, width))
        return patches + self.positions(torch.cat(places))

    def numbers(self, patches: Tensor, grid_thw: Tensor) -> Inputs:
        return {"patches": patches, "sizes": grid_thw[:, 1:].tolist()}

    def by_hand(self, patches: Tensor, sizes: Grids) -> Tensor:
        places = torch.cat([self._of_one(*each) for each in sizes])
        return self.layer(patches) + self.positions(places)


class FrameIndex(_OfImages):
    """A learned position of each frame, and none for what is a single image."""

    def __init__(self) -> None:
        super().__init__()
        self.frames = nn.Embedding(8, WIDTH)

    def _of_one(self, t: int, h: int, w: int) -> Tensor:
        return (torch.arange(t) + int(t > 1)).repeat_interleave(h * w)

    def forward(self, patches: Tensor, grid_thw: Tensor) -> Tensor:
        patches, parts = self.layer(patches), []
        for t, h, w in grid_thw.tolist():
            t, h, w = int(t), int(h), int(w)
            parts.append(self._of_one(t, h, w))
        return patches + self.frames(torch.cat(parts))

    def by_hand(self, patches: Tensor, grids: Grids) -> Tensor:
        parts = [self._of_one(*each) for each in grids]
        return self.layer(patches) + self.frames(torch.cat(parts))


class CroppedPatches(Tower):
    """Images are filled up to one size; each is cropped to its own by numbers of one item."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, WIDTH, 2, stride=2)

    def _together(self, cropped: list[Tensor]) -> Tensor:
        rows = torch.cat([each.flatten(1).T for each in cropped])
        places = torch.cat([in_blocks(each.shape[-2], each.shape[-1], 1) for each in cropped])
        return rotated(rows, places)

    def forward(self, pixels: Tensor, sizes: Tensor) -> Tensor:
        embedded = self.layer(pixels)
        return self._together(
            [each[..., : size[0] // 2, : size[1] // 2] for each, size in zip(embedded, sizes)]
        )

    def numbers(self, pixels: Tensor, sizes: Tensor) -> Inputs:
        return {"pixels": pixels, "sizes": sizes.tolist()}

    def by_hand(self, pixels: Tensor, sizes: Grids) -> Tensor:
        embedded = self.layer(pixels)
        return self._together(
            [each[..., : h // 2, : w // 2] for each, (h, w) in zip(embedded, sizes, strict=True)]
        )


def _blocks() -> Layouts:
    """Images, and how large the blocks of each are: its second in blocks of one patch."""
    blocks = [[_MERGE if at != 1 else 1 for at in range(len(sizes))] for sizes in GRIDS]
    return [
        each | {"sizes": torch.tensor(of_each)}
        for each, of_each in zip(images(), blocks, strict=True)
    ]


def _filled_up() -> Layouts:
    return [
        {
            "patches": drawn(len(sizes), 40, WIDTH),
            "shapes": torch.tensor(sizes)[:, 1:],
        }
        for sizes in GRIDS
    ]


def _pixels() -> Layouts:
    return [
        {"pixels": drawn(len(sizes), 3, 16, 16), "sizes": torch.tensor(sizes)[:, 1:] * 2}
        for sizes in GRIDS
    ]


KINDS: Final[tuple[Kind, ...]] = (
    kind(RotaryPositions, _blocks),
    kind(RotaryTable, films),
    kind(InterpolatedPositions, films),
    kind(RepeatedSizes, films_or_none),
    kind(ResizedTable, _filled_up),
    kind(NearestBuckets, images),
    kind(FrameIndex, films),
    kind(CroppedPatches, _pixels),
)
