"""Lists, dictionaries and objects that hold more after one side of a branch than the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from corpus.patterns.pattern import CHOICE, NO_MERGE, SPLIT, WHERE, pattern, patterns_among, signs

Program = Callable[..., Any]


@pattern(signs, CHOICE)
def detections_above_a_threshold() -> Program:
    def program(x: Tensor) -> dict[str, Any]:
        boxes, scores = [], []
        for score in x:
            if score > 0.6:
                boxes.append(torch.stack([score, score * 2]))
                scores.append(score + 0)
        if not boxes:
            return {"count": 0}
        return {"boxes": torch.stack(boxes), "scores": torch.stack(scores)}

    return program


@pattern(signs, WHERE)
def optional_terms_of_a_loss() -> Program:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
            y = self.layer(x)
            losses = {"main": y.pow(2).mean()}
            if x.min() < 0:
                losses["penalty"] = y.abs().mean()
            if x.sum() > 0:
                losses["auxiliary"] = y.mean()
            return y, losses

    return Net()


@pattern(signs, SPLIT)
def terms_of_a_loss_added_up() -> Program:
    def program(x: Tensor) -> Tensor:
        losses = [x.pow(2).mean()]
        if x.sum() > 0:
            losses.append(x.mean())
        return sum(losses)

    return program


@pattern(signs, SPLIT)
def items_sorted_into_two_lists() -> Program:
    def program(x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        positive, other = [], []
        for each in x[:2]:
            (positive if each > 0 else other).append(each * 2)
        return positive, other

    return program


@pattern(signs, WHERE)
def window_of_a_queue() -> Program:
    def program(x: Tensor) -> deque[Tensor]:
        last = deque([x * 1, x * 2], maxlen=2)
        if x.sum() > 0:
            last.append(x * 3)
        last.appendleft(x * 4)
        return last

    return program


@pattern(signs, NO_MERGE)
def state_stored_over_later() -> Program:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stage: str | None = "made"

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                self.stage = "positive"
            else:
                self.stage = None
            y = x * 2
            self.stage = "done"
            return y

    return Net()


@dataclass
class Event:
    """Something worth noting."""

    name: str
    value: Tensor


@pattern(signs, WHERE)
def events_noted_as_objects() -> Program:
    def program(x: Tensor) -> list[Event]:
        events = []
        if x.sum() > 0:
            events.append(Event("positive", x.mean()))
        if x.min() < -3:
            events.append(Event("low", x.min()))
        events.append(Event("end", x * 1))
        return events

    return program


PATTERNS = patterns_among(list(vars().values()))
