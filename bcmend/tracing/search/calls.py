"""The call of a patched function that a thread is in, and what is noted for it alone."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from types import FunctionType
from typing import Any, Final

import torch

from bcmend.delivery.records import Buffer


class Current(threading.local):
    """What this thread's call has.

    Attributes:
        buffer: that of the innermost boundary; ``None`` outside of any call.
        epoch: the latest at whose beginning nothing of an earlier trace was left in this thread.
        callback: compiles frames in the next call that is made in place of a frame.
        variables: the function that the boundary has called, and what it was given.
        states: those of generators that the frame entered last has saved: torch's, and Python's.
        leaves: the tensors that the frame entered last has had require gradients.
    """

    buffer: Buffer | None = None
    epoch: int = -1
    callback: Any = None
    variables: tuple[FunctionType, tuple[Any, ...]] | None = None
    states: tuple[tuple[tuple[torch.Generator, torch.Tensor], ...], Any] | None = None
    leaves: Sequence[weakref.ref[torch.Tensor]] = ()


CURRENT: Final = Current()
