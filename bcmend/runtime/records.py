"""Deliver what one call recorded, in the order of the program.

A record is ``(site key, predicate, action, inputs)``. An output record's action makes the call of
the original statement; a guard's action raises the original exception, from the original file and
line. Delivery stops at the first guard that failed: eager would not have gone further.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["Buffer", "deliver"]

Buffer = list[tuple[str, "torch.Tensor | None", Any, tuple[Any, ...]]]


@torch.compiler.disable
def deliver(buffer: Buffer) -> None:
    """Run the records of ``buffer`` and leave it empty, whatever happens."""
    records = list(buffer)
    buffer.clear()
    for _, predicate, action, inputs in records:
        if predicate is None or bool(predicate):
            action(*inputs)
