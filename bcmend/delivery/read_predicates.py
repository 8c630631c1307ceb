"""Reads the conditions of side exits and records when their graph has run.

Reading from an accelerator synchronizes with it, so all conditions of one device are read at once.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import torch

_IS_CPU: Final = operator.attrgetter("is_cpu")


def truths(conditions: Sequence[torch.Tensor]) -> Sequence[bool]:
    """Return the truth of each of some boolean tensors without dimensions."""
    if all(map(_IS_CPU, conditions)):
        return [*map(bool, conditions)]
    positions: dict[torch.device, list[int]] = defaultdict(list)
    for position, condition in enumerate(conditions):
        positions[condition.device].append(position)
    found = [False] * len(conditions)
    for alike in positions.values():
        values = [conditions[position] for position in alike]
        read = torch.stack(values).cpu() if len(values) > 1 else values
        for position, value in zip(alike, read, strict=True):
            found[position] = bool(value)
    return found
