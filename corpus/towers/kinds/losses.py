"""Losses over what is valid, and how much that is."""

# Models write zip without strict, and the form of their code is what is tested.
# ruff: noqa: B905

from __future__ import annotations

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpus.towers.kind import Inputs, Kind, Layouts, Tower, kind
from corpus.towers.kinds.layouts import LENGTHS, WIDTH, drawn

_CLASSES: Final = 5
_IGNORED: Final = -100


class _Head(Tower):
    """A layer that gives a logit for each class."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, _CLASSES)


class ValidTokens(_Head):
    """The loss of the tokens that a mask selects, over their number."""

    def forward(self, hidden: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.head(hidden)
        valid = labels != _IGNORED
        total = F.cross_entropy(logits[valid], labels[valid], reduction="sum")
        return total / valid.sum().item(), logits

    def numbers(self, hidden: Tensor, labels: Tensor) -> Inputs:
        places = (labels != _IGNORED).flatten().nonzero().squeeze(1)
        return {"hidden": hidden, "labels": labels, "places": places, "count": len(places)}

    def by_hand(
        self, hidden: Tensor, labels: Tensor, places: Tensor, count: int
    ) -> tuple[Tensor, Tensor]:
        logits = self.head(hidden)
        chosen = logits.flatten(0, 1)[places]
        total = F.cross_entropy(chosen, labels.flatten()[places], reduction="sum")
        return total / count, logits


class NothingValid(_Head):
    """Where nothing is valid, the loss is zero and still has gradients."""

    def forward(self, hidden: Tensor, labels: Tensor) -> Tensor:
        logits = self.head(hidden)
        count = int((labels != _IGNORED).sum())
        if count == 0:
            return logits.sum() * 0.0
        total = F.cross_entropy(logits.transpose(1, 2), labels, reduction="sum")
        return total / count

    def numbers(self, hidden: Tensor, labels: Tensor) -> Inputs:
        count = int((labels != _IGNORED).sum())
        return {"hidden": hidden, "labels": labels, "count": count}

    def by_hand(self, hidden: Tensor, labels: Tensor, count: int) -> Tensor:
        logits = self.head(hidden)
        if count == 0:
            return logits.sum() * 0.0
        return F.cross_entropy(logits.transpose(1, 2), labels, reduction="sum") / count


class LossOfEachText(_Head):
    """The mean loss of each text, out of losses of all tokens behind each other."""

    def forward(self, hidden: Tensor, labels: Tensor) -> Tensor:
        valid = labels != _IGNORED
        rows = torch.cat([row[seen] for row, seen in zip(self.head(hidden), valid)])
        losses = F.cross_entropy(rows, labels[valid], reduction="none")
        parts = losses.split(valid.sum(dim=1).tolist())
        return torch.stack([each.sum() / max(each.numel(), 1) for each in parts])

    def numbers(self, hidden: Tensor, labels: Tensor) -> Inputs:
        valid = labels != _IGNORED
        places = valid.flatten().nonzero().squeeze(1)
        counts = valid.sum(dim=1).tolist()
        return {"hidden": hidden, "labels": labels, "places": places, "counts": counts}

    def by_hand(self, hidden: Tensor, labels: Tensor, places: Tensor, counts: list[int]) -> Tensor:
        rows = self.head(hidden).flatten(0, 1)[places]
        losses = F.cross_entropy(rows, labels.flatten()[places], reduction="none")
        return torch.stack([each.sum() / max(each.numel(), 1) for each in losses.split(counts)])


class BoxesOfImages(_Head):
    """Costs of all boxes beside each other are split by how many boxes each image has."""

    def forward(self, hidden: Tensor, boxes: Tensor, counts: Tensor) -> Tensor:
        logits = self.head(hidden)
        cost = torch.cdist(logits.flatten(0, 1), boxes).view(*hidden.shape[:2], -1)
        number = max(counts.sum().item(), 1)
        parts = cost.split(counts.tolist(), dim=-1)
        best = [each[at].min(dim=0).values.sum() for at, each in enumerate(parts)]
        return torch.stack(best).sum() / number

    def numbers(self, hidden: Tensor, boxes: Tensor, counts: Tensor) -> Inputs:
        return {"hidden": hidden, "boxes": boxes, "counts": counts.tolist()}

    def by_hand(self, hidden: Tensor, boxes: Tensor, counts: list[int]) -> Tensor:
        logits = self.head(hidden)
        cost = torch.cdist(logits.flatten(0, 1), boxes).view(*hidden.shape[:2], -1)
        parts = cost.split(counts, dim=-1)
        best = [each[at].min(dim=0).values.sum() for at, each in enumerate(parts)]
        return torch.stack(best).sum() / max(sum(counts), 1)


def _labelled(lengths: tuple[int, ...]) -> Inputs:
    labels = torch.full((len(lengths), 12), _IGNORED)
    for at, length in enumerate(lengths):
        labels[at, 12 - length :] = torch.arange(length) % _CLASSES
    return {"hidden": drawn(len(lengths), 12, WIDTH), "labels": labels}


def _labels() -> Layouts:
    """Texts whose last tokens have labels."""
    return [_labelled(each) for each in LENGTHS]


def _labels_or_none() -> Layouts:
    """The same, a call with a text that has no label, and a call with none at all."""
    return [_labelled(each) for each in (*LENGTHS, (5, 0), (0, 0))]


def _boxes() -> Layouts:
    """Images with so many boxes each, some with none."""
    counts = ([2, 3], [4], [1, 0, 2, 5, 1], [3, 1], [0, 2, 2])
    return [
        {
            "hidden": drawn(len(each), 6, WIDTH),
            "boxes": drawn(sum(each), _CLASSES, seed=2),
            "counts": torch.tensor(each),
        }
        for each in counts
    ]


KINDS: Final[tuple[Kind, ...]] = (
    kind(ValidTokens, _labels),
    kind(NothingValid, _labels_or_none),
    kind(LossOfEachText, _labels_or_none),
    kind(BoxesOfImages, _boxes),
)
