"""Images among the tokens of a text: how many there are, where they stand, their positions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn

from corpus.towers.kind import Inputs, Kind, Layouts, Tower, kind
from corpus.towers.kinds.layouts import GRIDS, WIDTH, as_grids, drawn

TOKENS: Final = 12
_FIRST: Final = 1
IMAGE: Final = 2
_LAST: Final = 3
_END: Final = 4
_MERGE: Final = 2

#: What is to stand in a text: a kind of token, and how many there are.
Groups = Sequence[tuple[int, int]]


class _Embedded(Tower):
    """Embeddings of tokens, and a layer for the features of images."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(TOKENS, WIDTH)
        self.layer = nn.Linear(WIDTH, WIDTH)


class CheckedTokens(_Embedded):
    """Features go where the tokens of images stand, which have to be as many."""

    def forward(self, ids: Tensor, features: Tensor) -> Tensor:
        embedded = self.embed(ids)
        found = self.layer(features)
        n_tokens = (ids == IMAGE).sum().item()
        if n_tokens != found.shape[0]:
            raise ValueError(
                f"image features and tokens do not match: {n_tokens} and {found.shape[0]}"
            )
        mask = (ids == IMAGE).unsqueeze(-1).expand_as(embedded)
        return embedded.masked_scatter(mask, found)

    def numbers(self, ids: Tensor, features: Tensor) -> Inputs:
        count = int((ids == IMAGE).sum())
        if count != features.shape[0]:
            raise ValueError(
                f"image features and tokens do not match: {count} and {features.shape[0]}"
            )
        return {"ids": ids, "features": features}

    def by_hand(self, ids: Tensor, features: Tensor) -> Tensor:
        embedded = self.embed(ids)
        mask = (ids == IMAGE).unsqueeze(-1).expand_as(embedded)
        return embedded.masked_scatter(mask, self.layer(features))


class SelectedTokens(CheckedTokens):
    """The same, where what is compared is how much of a tensor a mask selects."""

    def forward(self, ids: Tensor, features: Tensor) -> Tensor:
        embedded, found = self.embed(ids), self.layer(features)
        mask = (ids == IMAGE).unsqueeze(-1).expand_as(embedded)
        if embedded[mask].numel() != found.numel():
            count = (ids == IMAGE).sum()
            raise ValueError(f"image features do not match the tokens: {count}")
        return embedded.masked_scatter(mask, found)

    def numbers(self, ids: Tensor, features: Tensor) -> Inputs:
        if (count := int((ids == IMAGE).sum())) != features.shape[0]:
            raise ValueError(f"image features do not match the tokens: {count}")
        return {"ids": ids, "features": features}


class NoImages(_Embedded):
    """Features are computed only where a token asks for them."""

    def forward(self, ids: Tensor, features: Tensor) -> Tensor:
        embedded = self.embed(ids)
        if features is not None and (ids == IMAGE).any():
            mask = (ids == IMAGE).unsqueeze(-1)
            embedded = embedded.masked_scatter(mask, self.layer(features))
        return embedded

    def numbers(self, ids: Tensor, features: Tensor) -> Inputs:
        return {"ids": ids, "features": features, "any_there": bool((ids == IMAGE).any())}

    def by_hand(self, ids: Tensor, features: Tensor, any_there: bool) -> Tensor:
        embedded = self.embed(ids)
        if any_there:
            mask = (ids == IMAGE).unsqueeze(-1)
            embedded = embedded.masked_scatter(mask, self.layer(features))
        return embedded


class ImageBounds(_Embedded):
    """Where images begin and end is looked up in the ids; features are put in between."""

    def _put(self, embedded: Tensor, found: Tensor, bounds: Sequence[Sequence[int]]) -> Tensor:
        parts, end, used = [], 0, 0
        for first, last in bounds:
            parts += [embedded[end:first], found[used : used + last - first]]
            end, used = last, used + last - first
        return torch.cat([*parts, embedded[end:]])

    def forward(self, ids: Tensor, features: Tensor) -> Tensor:
        found = self.layer(features)
        firsts = torch.where(ids[0] == _FIRST)[0] + 1
        lasts = torch.where(ids[0] == _LAST)[0]
        count = min(len(firsts), len(lasts))
        bounds = torch.stack([firsts[:count], lasts[:count]], dim=1).tolist()
        return self._put(self.embed(ids[0]), found, bounds)

    def numbers(self, ids: Tensor, features: Tensor) -> Inputs:
        firsts = (ids[0] == _FIRST).nonzero().flatten() + 1
        lasts = (ids[0] == _LAST).nonzero().flatten()
        bounds = torch.stack([firsts, lasts], dim=1).tolist()
        return {"ids": ids, "features": features, "bounds": bounds}

    def by_hand(self, ids: Tensor, features: Tensor, bounds: list[list[int]]) -> Tensor:
        return self._put(self.embed(ids[0]), self.layer(features), bounds)


class RopeIndex(_Embedded):
    """Positions of texts and images: the ids are a list in which images are looked up."""

    def _image(self, first: int | Tensor, grid: Any) -> Tensor:
        t, h, w = grid[0], grid[1] // _MERGE, grid[2] // _MERGE
        frames = torch.arange(t).view(-1, 1).expand(-1, h * w).flatten()
        rows = torch.arange(h).view(1, -1, 1).expand(t, -1, w).flatten()
        columns = torch.arange(w).view(1, 1, -1).expand(t, h, -1).flatten()
        return torch.stack([frames, rows, columns]) + first

    def forward(self, ids: Tensor, grid_thw: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        positions, deltas, at = torch.ones(3, *ids.shape, dtype=ids.dtype), [], 0
        for row, text in enumerate(ids):
            text = text[mask[row] == 1]
            begins = torch.argwhere(text == _FIRST).squeeze(1)
            images = (text[begins + 1] == IMAGE).sum()
            tokens, found, start = text.tolist(), [], 0
            for _ in range(images):
                end = tokens.index(IMAGE, start)
                t, h, w = grid_thw[at][0], grid_thw[at][1], grid_thw[at][2]
                at += 1
                grid = (t.item(), h.item(), w.item())
                first = found[-1].max() + 1 if len(found) > 0 else 0
                found.append(torch.arange(end - start).view(1, -1).expand(3, -1) + first)
                found.append(self._image(end - start + first, grid))
                start = end + grid[0] * (grid[1] // _MERGE) * (grid[2] // _MERGE)
            if start < len(tokens):
                first = found[-1].max() + 1 if len(found) > 0 else 0
                rest = torch.arange(len(tokens) - start).view(1, -1).expand(3, -1)
                found.append(rest + first)
            of_text = torch.cat(found, dim=1).reshape(3, -1)
            positions[..., row, mask[row] == 1] = of_text
            deltas.append(of_text.max() + 1 - len(ids[row]))
        return self._turned(ids, positions), torch.tensor(deltas).unsqueeze(1)

    def _turned(self, ids: Tensor, positions: Tensor) -> Tensor:
        return self.layer(self.embed(ids)) * positions.sum(0).unsqueeze(-1).cos()

    def numbers(self, ids: Tensor, grid_thw: Tensor, mask: Tensor) -> Inputs:
        grids, texts = iter(grid_thw.tolist()), []
        for row, text in enumerate(ids):
            of_text = (text[mask[row] == 1] == IMAGE).long().tolist()
            groups = [(key, len(list(group))) for key, group in itertools.groupby(of_text)]
            texts.append([next(grids) if key else [length] for key, length in groups])
        return {"ids": ids, "texts": texts}

    def _of_groups(self, groups: Sequence[Sequence[int]]) -> Tensor:
        found, current = [], 0
        for group in groups:
            if len(group) == 1:
                found.append(torch.arange(group[0]).view(1, -1).expand(3, -1) + current)
                current += group[0]
            else:
                found.append(self._image(current, group))
                current += max(group[0], group[1] // _MERGE, group[2] // _MERGE)
        return torch.cat(found, dim=1)

    def by_hand(self, ids: Tensor, texts: list[list[list[int]]]) -> tuple[Tensor, Tensor]:
        positions, deltas = torch.ones(3, *ids.shape, dtype=ids.dtype), []
        for row, groups in enumerate(texts):
            of_text = self._of_groups(groups)
            positions[:, row, ids.shape[1] - of_text.shape[1] :] = of_text
            deltas.append(of_text.max() + 1 - ids.shape[1])
        return self._turned(ids, positions), torch.stack(deltas).unsqueeze(1)


class RopeGroups(RopeIndex):
    """The same by groups of tokens of one type, and the largest of two numbers out of tensors."""

    def forward(self, ids: Tensor, types: Tensor, grid_thw: Tensor) -> tuple[Tensor, Tensor]:
        grids, positions, deltas = iter(grid_thw), [], []
        for of_text in types:
            groups = []
            for key, group in itertools.groupby(enumerate(of_text.tolist()), lambda x: x[1]):
                group = list(group)
                groups.append((key, group[0][0], group[-1][0] + 1))
            found, current = [], 0
            for key, start, end in groups:
                if key == 0:
                    length = end - start
                    found.append(torch.arange(length).view(1, -1).expand(3, -1) + current)
                    current += length
                else:
                    grid = next(grids)
                    sides = (grid[0].item(), grid[1].item(), grid[2].item())
                    found.append(self._image(current, sides))
                    current += max(grid[1], grid[2]) // _MERGE
            positions.append(torch.cat(found, dim=1))
            deltas.append(positions[-1].max() + 1 - len(of_text))
        return self._turned(ids, torch.stack(positions, dim=1)), torch.stack(deltas)

    def numbers(self, ids: Tensor, types: Tensor, grid_thw: Tensor) -> Inputs:
        grids, texts = iter(grid_thw.tolist()), []
        for of_text in types.tolist():
            groups = [(key, len(list(group))) for key, group in itertools.groupby(of_text)]
            texts.append([next(grids) if key else [length] for key, length in groups])
        return {"ids": ids, "texts": texts}

    def by_hand(self, ids: Tensor, texts: list[list[list[int]]]) -> tuple[Tensor, Tensor]:
        positions = torch.stack([self._of_groups(groups) for groups in texts], dim=1)
        deltas = [each.max() + 1 - ids.shape[1] for each in positions.unbind(1)]
        return self._turned(ids, positions), torch.stack(deltas)


class FirstEnd(_Embedded):
    """Each text is pooled up to its first token of one kind, looked up in a list."""

    def forward(self, ids: Tensor) -> Tensor:
        embedded, found = self.layer(self.embed(ids)), []
        for at, tokens in enumerate(ids.tolist()):
            end = tokens.index(_END) if _END in tokens else len(tokens)
            found.append(embedded[at, :end].sum(dim=0))
        return torch.stack(found)

    def numbers(self, ids: Tensor) -> Inputs:
        ends = [each.index(_END) if _END in each else len(each) for each in ids.tolist()]
        return {"ids": ids, "ends": ends}

    def by_hand(self, ids: Tensor, ends: list[int]) -> Tensor:
        embedded = self.layer(self.embed(ids))
        return torch.stack([embedded[at, :end].sum(dim=0) for at, end in enumerate(ends)])


class LastAnswer(_Embedded):
    """What stands behind the last token of one kind is kept."""

    def forward(self, ids: Tensor) -> Tensor:
        start = torch.nonzero(ids[0] == _LAST, as_tuple=False).flatten()[-1].item()
        return self.layer(self.embed(ids[:, start:]))

    def numbers(self, ids: Tensor) -> Inputs:
        return {"ids": ids, "start": int((ids[0] == _LAST).nonzero()[-1])}

    def by_hand(self, ids: Tensor, start: int) -> Tensor:
        return self.layer(self.embed(ids[:, start:]))


def _text(*groups: tuple[int, int]) -> list[int]:
    return [token for token, count in groups for _ in range(count)]


def features_of(grid: Sequence[int]) -> int:
    return grid[0] * (grid[1] // _MERGE) * (grid[2] // _MERGE)


def text_with_images(grids: Sequence[Sequence[int]]) -> list[int]:
    """A text with images, of which each stands between two tokens, and words around."""
    inside: list[tuple[int, int]] = []
    for number, grid in enumerate(grids):
        inside += [(7, number + 1), (_FIRST, 1), (IMAGE, features_of(grid)), (_LAST, 1)]
    return _text(*inside, (8, 3), (_END, 1), (9, 2))


def _of_each(*, also_none: bool = False, wrong: bool = False) -> Layouts:
    found: list[Inputs] = []
    for grids in (*GRIDS, *(((),) if also_none else ())):
        features = drawn(sum(map(features_of, grids)), WIDTH)
        found.append({"ids": torch.tensor([text_with_images(grids)]), "features": features})
    if wrong:
        found.append(found[0] | {"features": drawn(3, WIDTH)})
    return found


def _matching() -> Layouts:
    """Texts of one, two and more images, and one without."""
    return _of_each(also_none=True)


def _some_not_matching() -> Layouts:
    """The same, and a text with other features than it has tokens."""
    return _of_each(also_none=True, wrong=True)


def _ids() -> Layouts:
    """The texts alone."""
    return [{"ids": each["ids"]} for each in _of_each()]


def _two_texts() -> list[tuple[Tensor, Tensor, Tensor]]:
    """Two texts each, filled up in front: ids, masks, and the grids of all their images."""
    found = []
    for grids in GRIDS:
        half = len(grids) // 2
        texts = [text_with_images(grids[half:]), text_with_images(grids[:half])]
        width = max(map(len, texts))
        ids = torch.tensor([[0] * (width - len(each)) + each for each in texts])
        found.append((ids, (ids != 0).long(), as_grids((*grids[half:], *grids[:half]))))
    return found


def _masked_texts() -> Layouts:
    """Two texts, with an image or more in the first of them."""
    return [{"ids": a, "mask": b, "grid_thw": c} for a, b, c in _two_texts()]


def _typed_texts() -> Layouts:
    """The same with types of tokens."""
    return [{"ids": a, "types": (a == IMAGE).long(), "grid_thw": c} for a, _, c in _two_texts()]


KINDS: Final[tuple[Kind, ...]] = (
    kind(CheckedTokens, _some_not_matching),
    kind(SelectedTokens, _some_not_matching),
    kind(NoImages, _matching),
    kind(ImageBounds, _matching),
    kind(RopeIndex, _masked_texts),
    kind(RopeGroups, _typed_texts),
    kind(FirstEnd, _ids),
    kind(LastAnswer, _ids),
)
