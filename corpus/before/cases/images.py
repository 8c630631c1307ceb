"""Positions of texts with images, sample by sample, and checks that both fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn

from corpus.before.case import Case, Size, drawn
from corpus.before.cases.layers import Block
from corpus.towers.kind import Layouts

_ROWS: Final = 3  # of an image, each of so many patches
_IMAGE: Final = 1  # the number that stands for a patch


class _Positions(nn.Module):
    """Texts, and an image behind each; every row has positions of three kinds."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.scale = nn.Linear(3, size.width)
        self.blocks = nn.ModuleList(Block(size.width) for _ in range(size.layers))

    def rope_index(self, text_lens: Tensor, length: int) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor, text_lens: Tensor) -> Tensor:
        positions = self.rope_index(text_lens, x.shape[1])
        x = x + self.scale(positions.permute(1, 2, 0).float() / x.shape[1]).sin()
        for block in self.blocks:
            x = block(x)
        return x


class PositionsInALoop(_Positions):
    """A text is appended if there is one; then the image, and what is left."""

    def rope_index(self, text_lens: Tensor, length: int) -> Tensor:
        found = torch.zeros(3, len(text_lens), length, dtype=torch.long)
        for at, text_len in enumerate(text_lens):
            parts: list[Tensor] = []
            if text_len.item() > 0:
                parts.append(torch.arange(text_len).view(1, -1).expand(3, -1))
            start = parts[-1].max() + 1 if parts else 0
            places = torch.arange(_ROWS * _ROWS)
            image = torch.stack([places * 0, places // _ROWS, places % _ROWS])
            parts.append(image + start)
            rest = length - text_len.item() - _ROWS * _ROWS
            if rest > 0:
                last = parts[-1].max() + 1
                parts.append(torch.arange(rest).view(1, -1).expand(3, -1) + last)
            found[:, at] = torch.cat(parts, dim=1)
        return found


class PositionsByPlace(_Positions):
    """Each place tells by itself whether it is before, in or behind the image."""

    def rope_index(self, text_lens: Tensor, length: int) -> Tensor:
        places = torch.arange(length)[None]
        inside = places - text_lens[:, None]
        image = torch.stack([inside * 0, inside // _ROWS, inside % _ROWS]) + text_lens[:, None]
        behind = places - _ROWS * _ROWS + _ROWS
        found = torch.where(inside < _ROWS * _ROWS, image, behind)
        return torch.where(inside < 0, places, found)


def compilable_check(
    cond: Any, message: str | Callable[[], str], error_type: type[Exception] = ValueError
) -> None:
    """Raise an exception if a condition is not met; when compiled, another one."""
    if torch.compiler.is_compiling():
        if isinstance(cond, Tensor):
            torch._check_tensor_all(cond)
        else:
            torch._check(cond)
        return
    told = message if callable(message) else lambda: message
    if isinstance(cond, Tensor):
        torch._check_tensor_all_with(error_type, cond, told)
    else:
        torch._check_with(error_type, cond, told)


class _Placed(nn.Module):
    """Features of images take the places that the text has for them."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.words = nn.Embedding(16, size.width)
        self.blocks = nn.ModuleList(Block(size.width) for _ in range(size.layers))

    def check(self, mask: Tensor, features: Tensor) -> None:
        raise NotImplementedError

    def forward(self, ids: Tensor, features: Tensor) -> Tensor:
        x = self.words(ids)
        mask = ids == _IMAGE
        self.check(mask, features)
        x = x.masked_scatter(mask.unsqueeze(-1).expand_as(x), features)
        for block in self.blocks:
            x = block(x)
        return x


class CheckedWithMessage(_Placed):
    """A check that raises an exception of its own."""

    def check(self, mask: Tensor, features: Tensor) -> None:
        tokens = mask.sum()
        if tokens != features.shape[0]:
            raise ValueError(
                f"Image features and image tokens do not match, tokens: {tokens},"
                f" features: {features.shape[0]}"
            )


class CompilableCheck(_Placed):
    """What the authors wrote instead, which forgets the exception when it is compiled."""

    def check(self, mask: Tensor, features: Tensor) -> None:
        tokens = mask.sum()
        compilable_check(
            tokens == features.shape[0],
            lambda: (
                f"Image features and image tokens do not match, tokens: {tokens},"
                f" features: {features.shape[0]}"
            ),
        )


def _texts(size: Size) -> Layouts:
    """Samples whose texts are none, one and all of the rows but those of the image."""
    length = size.rows + _ROWS * _ROWS
    lengths = [(3, 0), (0, 0), (size.rows, 1), (5, size.rows), (1, 2), (size.rows, size.rows)]
    return [
        {"x": drawn(at, 2, length, size.width), "text_lens": torch.tensor(each)}
        for at, each in enumerate(lengths)
    ]


def _with_features(size: Size) -> Layouts:
    """So many features as there are places in the text, of one, some and no images."""
    layouts = []
    for at, count in enumerate([1, 4, 0, size.rows, 7]):
        ids = drawn(at, 2, size.rows).mul(100).long().abs() % 14 + 2
        ids.view(-1)[::2][:count] = _IMAGE
        layouts.append({"ids": ids, "features": drawn(at, count, size.width)})
    return layouts


CASES: Final = (
    Case(
        "positions-by-sample",
        "pytorch 173915 (Qwen3-VL)",
        PositionsInALoop,
        PositionsByPlace,
        _texts,
    ),
    Case(
        "check-with-message",
        "transformers torch_compilable_check",
        CheckedWithMessage,
        CompilableCheck,
        _with_features,
    ),
)
