"""Arguments of calls in several layouts: so many images, clips or texts, of such sizes.

Everything is drawn from a generator of its own, so that the same call is made each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

import torch
from torch import Tensor

from corpus.towers.kind import Layouts

WIDTH: Final = 8

#: Frames, rows and columns of each image: two images, one, five, two of other sizes, three.
GRIDS: Final = (
    ((1, 4, 4), (1, 2, 6)),
    ((1, 4, 6),),
    ((1, 2, 2), (1, 4, 2), (1, 6, 4), (1, 2, 4), (1, 4, 4)),
    ((1, 6, 2), (1, 4, 8)),
    ((1, 2, 6), (1, 6, 6), (1, 4, 2)),
)
#: The same of films.
FILMS: Final = (
    ((2, 4, 4), (3, 2, 6)),
    ((4, 2, 2),),
    ((2, 2, 2), (1, 4, 2), (3, 2, 4), (1, 2, 2), (2, 4, 4)),
    ((1, 4, 4), (5, 2, 2)),
    ((3, 2, 2), (2, 6, 2), (1, 2, 4)),
)
#: How long each clip or text is.
LENGTHS: Final = ((7, 4), (9,), (3, 8, 5, 6, 2), (4, 10), (6, 6, 11))


def generator(seed: int = 1) -> torch.Generator:
    """Return a generator of its own."""
    return torch.Generator().manual_seed(seed)


def drawn(*shape: int, seed: int = 1) -> Tensor:
    """Return normal numbers, the same ones each time."""
    return torch.randn(*shape, generator=generator(seed))


def as_grids(sizes: Sequence[Sequence[int]]) -> Tensor:
    """Return sizes of images as a tensor, of three columns also where there is no image."""
    return torch.tensor(sizes, dtype=torch.long).reshape(-1, 3)


def _patches(layouts: Sequence[Sequence[Sequence[int]]]) -> Layouts:
    return [
        {"patches": drawn(sum(map(prod, sizes)), WIDTH), "grid_thw": as_grids(sizes)}
        for sizes in layouts
    ]


def images() -> Layouts:
    """Patches of images behind each other, and how large these are."""
    return _patches(GRIDS)


def images_or_none() -> Layouts:
    """The same, and a call without an image."""
    return _patches((*GRIDS, ()))


def films() -> Layouts:
    """Patches of films behind each other, and how long and large these are."""
    return _patches(FILMS)


def films_or_none() -> Layouts:
    """The same, and a call without a film."""
    return _patches((*FILMS, ()))


def packed() -> Layouts:
    """Frames of clips behind each other, and how long these are."""
    return [
        {"frames": drawn(sum(lengths), WIDTH), "lengths": torch.tensor(lengths)}
        for lengths in LENGTHS
    ]


def padded() -> Layouts:
    """Clips beside each other, each filled up to twelve frames, and how long these are."""
    return [
        {"frames": drawn(len(lengths), 12, WIDTH), "lengths": torch.tensor(lengths)}
        for lengths in LENGTHS
    ]
