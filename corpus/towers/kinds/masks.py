"""What masks select: patches, images, rows, and how many these are."""

# Models write zip without strict, and the form of their code is what is tested.
# ruff: noqa: B905

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpus.towers.kind import Inputs, Kind, Layouts, Tower, kind
from corpus.towers.kinds.layouts import GRIDS, WIDTH, drawn

_SIDE: Final = 4


class _Layer(Tower):
    """A layer, which these towers have in common."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)


class PatchMasks(_Layer):
    """Images are filled up; the mask of each says its rows and columns, hence its positions."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Embedding(_SIDE * _SIDE, WIDTH)

    def _of_one(self, rows: int | Tensor, columns: int | Tensor) -> Tensor:
        bounds = torch.arange(1 / _SIDE, 1.0, 1 / _SIDE)
        down = torch.bucketize(torch.arange(0, 1 - 1e-6, 1 / rows), bounds, right=True)
        across = torch.bucketize(torch.arange(0, 1 - 1e-6, 1 / columns), bounds, right=True)
        return (down[:, None] * _SIDE + across).flatten()

    def forward(self, patches: Tensor, mask: Tensor) -> Tensor:
        places = torch.full(patches.shape[:2], 0)
        for at, of_one in enumerate(mask):
            rows, columns = of_one[:, 0].sum(), of_one[0].sum()
            places[at][of_one.view(-1)] = self._of_one(rows, columns)
        return self.layer(patches + self.positions(places))

    def numbers(self, patches: Tensor, mask: Tensor) -> Inputs:
        sizes = [(int(each[:, 0].sum()), int(each[0].sum())) for each in mask]
        return {"patches": patches, "mask": mask, "sizes": sizes}

    def by_hand(self, patches: Tensor, mask: Tensor, sizes: Sequence[tuple[int, int]]) -> Tensor:
        found = []
        for rows, columns in sizes:
            inside = self._of_one(rows, columns).view(rows, columns)
            found.append(F.pad(inside, (0, mask.shape[2] - columns, 0, mask.shape[1] - rows)))
        return self.layer(patches + self.positions(torch.stack(found).flatten(1)))


class RealImages(_Layer):
    """Images of zeros fill texts up to one number of images, and are taken out."""

    def forward(self, pixels: Tensor) -> list[Tensor]:
        texts, count = pixels.shape[:2]
        flat = pixels.view(texts * count, *pixels.shape[2:])
        is_real = (flat == 0.0).sum(dim=(-1, -2)) != flat.shape[1:].numel()
        is_real[0] |= ~torch.any(is_real)
        per_text = is_real.view(texts, count).sum(dim=1)
        features = self.layer(flat[is_real].contiguous())
        return [each.reshape(-1, WIDTH) for each in features.split(per_text.tolist())]

    def numbers(self, pixels: Tensor) -> Inputs:
        is_real = (pixels != 0).flatten(2).any(dim=-1)
        is_real[0, 0] |= not is_real.any()
        chosen = is_real.flatten().nonzero().squeeze(1)
        return {"pixels": pixels, "chosen": chosen, "per_text": is_real.sum(dim=1).tolist()}

    def by_hand(self, pixels: Tensor, chosen: Tensor, per_text: list[int]) -> list[Tensor]:
        features = self.layer(pixels.flatten(0, 1)[chosen])
        return [each.reshape(-1, WIDTH) for each in features.split(per_text)]


class NothingMasked(_Layer):
    """A mask that masks nothing is none."""

    def forward(self, patches: Tensor, mask: Tensor) -> Tensor:
        attention_mask = mask.flatten(1)
        if not torch.any(~attention_mask):
            attention_mask = None
        else:
            attention_mask = attention_mask[:, None]
        x = self.layer(patches)
        return F.scaled_dot_product_attention(x, x, patches, attention_mask)

    def numbers(self, patches: Tensor, mask: Tensor) -> Inputs:
        return {"patches": patches, "mask": None if mask.all() else mask}

    def by_hand(self, patches: Tensor, mask: Tensor | None) -> Tensor:
        seen = None if mask is None else mask.flatten(1)[:, None]
        x = self.layer(patches)
        return F.scaled_dot_product_attention(x, x, patches, seen)


class UsefulSize(_Layer):
    """An image is cropped to the rows and columns that its mask has."""

    def __init__(self) -> None:
        super().__init__()
        self.newline = nn.Parameter(torch.randn(1, 1, WIDTH))

    def _cropped(self, image: Tensor, height: int, width: int) -> Tensor:
        image = image.view(_SIDE * 2, _SIDE * 2, WIDTH)[:height, :width]
        return torch.cat([image, self.newline.repeat(height, 1, 1)], dim=1).reshape(-1, WIDTH)

    def forward(self, patches: Tensor, mask: Tensor) -> list[Tensor]:
        found = []
        for at in range(patches.shape[0]):
            height = int(mask[at, :, 0].sum().item())
            width = int(mask[at, 0, :].sum().item())
            found.append(self._cropped(patches[at], height, width))
        return [self.layer(each) for each in found]

    def numbers(self, patches: Tensor, mask: Tensor) -> Inputs:
        sizes = [(int(each[:, 0].sum()), int(each[0].sum())) for each in mask]
        return {"patches": patches, "sizes": sizes}

    def by_hand(self, patches: Tensor, sizes: Sequence[tuple[int, int]]) -> list[Tensor]:
        found = [self._cropped(each, *size) for each, size in zip(patches, sizes, strict=True)]
        return [self.layer(each) for each in found]


class MaskedMean(_Layer):
    """The mean of the rows that a mask selects, text by text."""

    def forward(self, patches: Tensor, mask: Tensor) -> Tensor:
        x = self.layer(patches)
        return torch.stack([row[seen].mean(dim=0) for row, seen in zip(x, mask.flatten(1))])

    def numbers(self, patches: Tensor, mask: Tensor) -> Inputs:
        return {"patches": patches, "rows": [each.nonzero()[:, 0] for each in mask.flatten(1)]}

    def by_hand(self, patches: Tensor, rows: list[Tensor]) -> Tensor:
        x = self.layer(patches)
        return torch.stack([x[at][each].mean(dim=0) for at, each in enumerate(rows)])


class PlacesOfAMask(_Layer):
    """Rows are stored where a mask says."""

    def forward(self, patches: Tensor, mask: Tensor) -> Tensor:
        places = torch.where(mask.flatten(1))
        rows = self.layer(patches[places])
        return patches.index_put(indices=places, values=rows, accumulate=False)

    def numbers(self, patches: Tensor, mask: Tensor) -> Inputs:
        return {"patches": patches, "places": torch.where(mask.flatten(1))}

    def by_hand(self, patches: Tensor, places: tuple[Tensor, Tensor]) -> Tensor:
        return patches.index_put(places, self.layer(patches[places]), accumulate=False)


class GroupsOfEqualImages(_Layer):
    """Rows of one class are summed: the classes that are there, and how often each is."""

    def forward(self, patches: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        found, which, counts = classes.unique(return_inverse=True, return_counts=True)
        order = torch.argsort(which, stable=True)
        parts = self.layer(patches)[order].split(counts.tolist())
        return found, torch.stack([each.sum(dim=0) for each in parts])

    def numbers(self, patches: Tensor, classes: Tensor) -> Inputs:
        found, counts = classes.unique(return_counts=True)
        order = torch.argsort(classes, stable=True)
        return {"patches": patches, "found": found, "order": order, "counts": counts.tolist()}

    def by_hand(
        self, patches: Tensor, found: Tensor, order: Tensor, counts: list[int]
    ) -> tuple[Tensor, Tensor]:
        parts = self.layer(patches)[order].split(counts)
        return found, torch.stack([each.sum(dim=0) for each in parts])


class ClassesInTurn(_Layer):
    """A loop over the classes that are there, each with the rows that a comparison selects."""

    def forward(self, patches: Tensor, classes: Tensor) -> Tensor:
        found, x = torch.zeros_like(patches), self.layer(patches)
        for each in classes.unique(sorted=True):
            rows = x[classes == each]
            found[classes == each] = rows - rows.mean(dim=0)
        return found

    def numbers(self, patches: Tensor, classes: Tensor) -> Inputs:
        rows = [(classes == each).nonzero().squeeze(1) for each in classes.unique()]
        return {"patches": patches, "places": rows}

    def by_hand(self, patches: Tensor, places: list[Tensor]) -> Tensor:
        found, x = torch.zeros_like(patches), self.layer(patches)
        for each in places:
            rows = x[each]
            found[each] = rows - rows.mean(dim=0)
        return found


def _masked() -> Layouts:
    """Images filled up to eight rows and columns, with masks of their own sizes."""
    found = []
    for sizes in (*GRIDS, ((1, 8, 8),)):
        mask = torch.zeros(len(sizes), _SIDE * 2, _SIDE * 2, dtype=torch.bool)
        for at, (_, height, width) in enumerate(sizes):
            mask[at, :height, :width] = True
        found.append({"patches": drawn(len(sizes), _SIDE**2 * 4, WIDTH), "mask": mask})
    return found


def _some_real() -> Layouts:
    """Two or three texts with so many images each, in calls of up to five; none in the last."""
    found = []
    for counts in ([1, 1], [1, 0], [2, 3], [3, 1], [0, 5, 1], [0, 0]):
        pixels = drawn(len(counts), max(*counts, 2), 3, WIDTH)
        for at, count in enumerate(counts):
            pixels[at, count:] = 0.0
        found.append({"pixels": pixels})
    return found


def _classes() -> Layouts:
    """Rows of one, two, three and five classes, in any order."""
    of_rows = ([2, 5, 2, 2], [7, 7], [1, 9, 4, 0, 3, 9, 1], [8, 3, 3], [6, 2, 0, 2, 6])
    return [{"patches": drawn(len(each), WIDTH), "classes": torch.tensor(each)} for each in of_rows]


KINDS: Final[tuple[Kind, ...]] = (
    kind(PatchMasks, _masked),
    kind(RealImages, _some_real),
    kind(NothingMasked, _masked),
    kind(UsefulSize, _masked),
    kind(MaskedMean, _masked),
    kind(PlacesOfAMask, _masked),
    kind(GroupsOfEqualImages, _classes),
    kind(ClassesInTurn, _classes),
)
