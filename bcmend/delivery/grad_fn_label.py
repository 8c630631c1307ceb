"""The name of its history that a printed tensor shows: ``grad_fn=<MulBackward0>``.

A tensor that leaves a compiled graph shows the history of the graph; inside a graph of AOTAutograd
tensors have none. The fake tensors of a trace have the history of eager execution: its name is
recorded, and delivery gives the tensor a history of that name.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import torch
from torch import Tensor

from bcmend import meta_keys

#: Names for tensors and parameters without a history.
_LEAF: Final = "leaf"
_PARAMETER: Final = "parameter"


def name_of(example: Tensor) -> str | None:
    """Return the name of the history of a fake tensor; ``None`` if it requires no gradients."""
    if not example.requires_grad:
        return None
    passed_on: str | None = getattr(example, meta_keys.HISTORY, None)
    if passed_on is not None:
        return passed_on
    if example.grad_fn is not None:
        return type(example.grad_fn).__name__
    return _PARAMETER if isinstance(example, torch.nn.Parameter) else _LEAF


def pass_on(example: Tensor, other: Tensor) -> None:
    """Have ``other`` show the history of ``example``."""
    name = name_of(example)
    if name is not None and example.grad_fn is not None:
        setattr(other, meta_keys.HISTORY, name)


def labeled(name: str, tensor: Tensor) -> Tensor:
    """Return ``tensor`` with a history of that name."""
    plain = tensor.detach()
    if name == _PARAMETER:
        return torch.nn.Parameter(plain)
    if name == _LEAF:
        return plain.requires_grad_()
    with torch.enable_grad():
        shown: Tensor = _identity(name).apply(plain.requires_grad_())
    type(shown.grad_fn).__name__ = name
    return shown


@lru_cache(maxsize=256)
def _identity(name: str) -> Any:
    """Return an identity function for each name, whose history can be renamed."""

    class Shown(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, given: Tensor) -> Tensor:
            return given.view_as(given)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return gradients[0]

    return Shown
