"""Masks of attention that are filled sample by sample."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn

from corpus.before.case import Case, Size, drawn
from corpus.before.cases.layers import Block
from corpus.towers.kind import Layouts


class _Blocks(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(size.width) for _ in range(size.layers))

    def seen(self, latents: Tensor, text: Tensor, text_mask: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, latents: Tensor, text: Tensor, text_mask: Tensor) -> Tensor:
        mask = self.seen(latents, text, text_mask)[:, None, None]
        x = torch.cat([latents, text], dim=1)
        for block in self.blocks:
            x = block(x, mask)
        return x[:, : latents.shape[1]]


class StoredBySample(_Blocks):
    """For each sample, as much of a row is stored to as its text is long."""

    def seen(self, latents: Tensor, text: Tensor, text_mask: Tensor) -> Tensor:
        batch, length = latents.shape[0], latents.shape[1] + text.shape[1]
        mask = torch.zeros(batch, length, device=latents.device, dtype=torch.bool)
        effective = latents.shape[1] + text_mask.sum(dim=1, dtype=torch.int)
        for i in range(batch):
            mask[i, : effective[i]] = True
        return mask


class ComparedPlaces(_Blocks):
    """The places are compared with the lengths."""

    def seen(self, latents: Tensor, text: Tensor, text_mask: Tensor) -> Tensor:
        batch, length = latents.shape[0], latents.shape[1] + text.shape[1]
        mask = torch.ones(batch, length, device=latents.device, dtype=torch.bool)
        effective = latents.shape[1] + text_mask.sum(dim=1, dtype=torch.int)
        places = torch.arange(length, device=latents.device)
        return mask.masked_fill(places >= effective[:, None], False)


def _texts(size: Size) -> Layouts:
    """Two samples, whose texts are none, one and all of what there is room for, and between."""
    rows = size.rows
    lengths = [(3, 5), (rows, 1), (0, rows), (rows - 1, rows), (0, 0), (2, 2)]
    return [
        {
            "latents": drawn(at, 2, rows, size.width),
            "text": drawn(at + 50, 2, rows, size.width),
            "text_mask": (torch.arange(rows) < torch.tensor(each)[:, None]).long(),
        }
        for at, each in enumerate(lengths)
    ]


CASES: Final = (Case("mask-by-sample", "diffusers 11457", StoredBySample, ComparedPlaces, _texts),)
