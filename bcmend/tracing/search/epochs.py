"""Epochs of the process: one ends whenever code is traced, or something is learnt about a trace.

What a call would clear up behind traces is clean while an epoch lasts. A call that begins in an
epoch in which the same call has cleared it up before need not do so again.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class _Epochs:
    """``number``: that of the present one."""

    number: int = 0


EPOCHS = _Epochs()


def end() -> None:
    """End the present epoch."""
    EPOCHS.number += 1  # two threads that do so at once end the same one
