"""The grad mode and the autocast under which a record is delivered."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

#: Device (empty for the accelerator), whether on, and dtype; "grad" stands for the grad mode.
Settings = tuple[tuple[str, bool, str], ...]


def call_under(settings: Settings, action: Callable[..., None], inputs: tuple[Any, ...]) -> None:
    """Call ``action(*inputs)`` under ``settings``."""
    with ExitStack() as stack:
        for device, is_on, dtype in settings:
            stack.enter_context(_block(device, is_on, dtype))
        action(*inputs)


def _block(device: str, is_on: bool, dtype: str) -> Any:
    if device == "grad":
        return torch.set_grad_enabled(is_on)
    if not device:
        accelerator = torch.accelerator.current_accelerator()
        device = "cuda" if accelerator is None else accelerator.type
    return torch.autocast(device, dtype=getattr(torch, dtype), enabled=is_on)
