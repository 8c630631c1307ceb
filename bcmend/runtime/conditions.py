"""Reads the conditions of side exits and records when their graph has run.

Reading a tensor of an accelerator waits until all that was asked of the accelerator is done. So all
conditions of one device are read at once; those on the CPU are at hand.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch._dynamo.eval_frame import skip_code

__all__ = ["truths"]


def truths(conditions: Sequence[torch.Tensor]) -> Sequence[bool]:
    """Return the truth of each of some boolean tensors without dimensions."""
    for each in conditions:
        if not each.is_cpu:
            return _by_device(conditions)
    return [bool(each) for each in conditions]


def _by_device(conditions: Sequence[torch.Tensor]) -> Sequence[bool]:
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


for _function in (truths, _by_device):
    skip_code(_function.__code__)
