"""Backward passes of calls that are tried: from all that a call returns, and gradients dropped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from bcmend.errors import CallError


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors that a value, or what it holds, has."""
    yield from _tensors_in(value, set())


def _tensors_in(value: Any, seen: set[int]) -> Iterator[torch.Tensor]:
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        yield value
        return
    parts = value.values() if isinstance(value, dict) else value
    if isinstance(value, (dict, list, tuple)):
        for part in parts:
            yield from _tensors_in(part, seen)
    elif hasattr(value, "__dict__"):
        yield from _tensors_in(vars(value), seen)


def go_back(result: object) -> None:
    """Make a backward pass from the sum of all floating results that have gradients.

    Raises:
        CallError: none has.
    """
    parts = [each.real.sum().float() for each in tensors_in(result) if each.requires_grad]
    if not parts:
        raise CallError("nothing that the call returns has a gradient: there is no backward pass")
    total = parts[0]
    for part in parts[1:]:
        total = total + part.to(total.device)
    total.backward()  # type: ignore[no-untyped-call]


def drop_gradients(holder: object) -> None:
    """Have the parameters of a module without gradients, as before the first backward pass."""
    if isinstance(holder, torch.nn.Module):
        holder.zero_grad(set_to_none=True)
