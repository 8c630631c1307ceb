"""Rows of two modalities, text and audio: none, all or some of a call are audio."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn

from corpus.before.case import Case, Size, drawn
from corpus.before.cases.layers import Feed
from corpus.towers.kind import Layouts

_TEXTS: Final = 40
_SOUNDS: Final = 24


class _Experts(nn.Module):
    """Each modality has networks of its own."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.text = nn.ModuleList(Feed(size.width) for _ in range(size.layers))
        self.audio = nn.ModuleList(Feed(size.width) for _ in range(size.layers))

    def layer(self, at: int, x: Tensor, mask: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        for at in range(len(self.text)):
            x = x + self.layer(at, x, mask)
        return x


class PermutedModalities(_Experts):
    """Rows of one modality take its network; else they are sorted, split, and put back."""

    def layer(self, at: int, x: Tensor, mask: Tensor) -> Tensor:
        if not mask.any():
            return self.text[at](x)
        if mask.all():
            return self.audio[at](x)
        return self.permuted(at, x, mask)

    def permuted(self, at: int, x: Tensor, mask: Tensor) -> Tensor:
        count = int(mask.sum().item())
        order = torch.argsort(mask.int(), descending=True, stable=True)
        rows = x[order]
        found = torch.cat([self.audio[at](rows[:count]), self.text[at](rows[count:])], dim=0)
        return found[torch.argsort(order)]


class ModalitiesByCond(PermutedModalities):
    """Its three paths."""

    def layer(self, at: int, x: Tensor, mask: Tensor) -> Tensor:
        return torch.cond(
            mask.any(),
            lambda x, mask: torch.cond(
                mask.all(),
                lambda x, mask: self.audio[at](x),
                lambda x, mask: self.permuted(at, x, mask),
                (x, mask),
            ),
            lambda x, mask: self.text[at](x),
            (x, mask),
        )


class CopiedModalities(_Experts):
    """The rows of each modality are looked up, and what was found is copied to their places."""

    def layer(self, at: int, x: Tensor, mask: Tensor) -> Tensor:
        found = torch.zeros_like(x)
        for feed, places in ((self.audio[at], mask.nonzero()), (self.text[at], (~mask).nonzero())):
            places = places.squeeze(1)
            found = found.index_copy(0, places, feed(x[places]))
        return found


class _Embedding(nn.Module):
    """Numbers of texts, and behind these numbers of sounds, have tables of their own."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.texts = nn.Embedding(_TEXTS, size.width)
        self.sounds = nn.Embedding(_SOUNDS, size.width)
        self.feeds = nn.ModuleList(Feed(size.width) for _ in range(size.layers))

    def embedded(self, ids: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedded(ids)
        for feed in self.feeds:
            x = x + feed(x)
        return x


class EmbeddedByParts(_Embedding):
    """A table is asked for its rows alone, and stored to them."""

    def embedded(self, ids: Tensor) -> Tensor:
        is_sound = ids >= _TEXTS
        if not is_sound.any():
            return self.texts(ids)
        if is_sound.all():
            return self.sounds(ids - _TEXTS)
        return self.permuted(ids, is_sound)

    def permuted(self, ids: Tensor, is_sound: Tensor) -> Tensor:
        count = int(is_sound.sum().item())
        order = torch.argsort(is_sound.int(), descending=True, stable=True)
        sorted_ids = ids[order]
        found = ids.new_empty((ids.shape[0], self.texts.embedding_dim), dtype=torch.float32)
        found[order[:count]] = self.sounds(sorted_ids[:count] - _TEXTS)
        found[order[count:]] = self.texts(sorted_ids[count:])
        return found


class EmbeddedByCond(EmbeddedByParts):
    """Its three paths."""

    def embedded(self, ids: Tensor) -> Tensor:
        is_sound = ids >= _TEXTS
        return torch.cond(
            is_sound.any(),
            lambda ids, is_sound: torch.cond(
                is_sound.all(),
                lambda ids, is_sound: self.sounds(ids - _TEXTS),
                self.permuted,
                (ids, is_sound),
            ),
            lambda ids, is_sound: self.texts(ids),
            (ids, is_sound),
        )


class EmbeddedByBoth(_Embedding):
    """Both tables are asked for all rows, with numbers that they have."""

    def embedded(self, ids: Tensor) -> Tensor:
        texts = self.texts(ids.clamp(max=_TEXTS - 1))
        sounds = self.sounds((ids - _TEXTS).clamp(min=0))
        return torch.where((ids >= _TEXTS)[:, None], sounds, texts)


def _masks(rows: int) -> list[Tensor]:
    """Which rows are audio: none, all, one, all but one, every third."""
    none = torch.zeros(rows, dtype=torch.bool)
    one, third = none.clone(), none.clone()
    one[rows // 2] = True
    third[::3] = True
    return [third, none, ~none, one, ~one, third.flip(0)]


def _rows(size: Size) -> Layouts:
    return [
        {"x": drawn(at, len(mask), size.width), "mask": mask}
        for at, mask in enumerate(_masks(2 * size.rows))
    ]


def _numbers(size: Size) -> Layouts:
    counted = torch.arange(2 * size.rows)
    return [
        {"ids": torch.where(mask, counted % _SOUNDS + _TEXTS, counted % _TEXTS)}
        for mask in _masks(2 * size.rows)
    ]


CASES: Final = (
    Case(
        "experts-by-modality",
        "vllm-omni 7432",
        PermutedModalities,
        CopiedModalities,
        _rows,
        settings={"capture_dynamic_output_shape_ops": True},
        same=ModalitiesByCond,
    ),
    Case(
        "embedding-by-modality",
        "vllm-omni 7432",
        EmbeddedByParts,
        EmbeddedByBoth,
        _numbers,
        same=EmbeddedByCond,
    ),
)
