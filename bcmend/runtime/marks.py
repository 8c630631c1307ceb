"""What a tensor shows of its gradients when it is printed, put back on one that has lost it.

Inside a graph of AOTAutograd tensors have no history: the graph is run below the part of torch that
records it. Reads a fake tensor of the trace, which has one; produces tensors of given contents that
print alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Marks"]


@dataclass(frozen=True, slots=True)
class Marks:
    """``history`` is the name of the operation that a tensor comes from; empty for a leaf."""

    is_parameter: bool
    requires_grad: bool
    history: str

    @classmethod
    def of(cls, example: torch.Tensor) -> Marks:
        """Return the marks of ``example``."""
        history = "" if example.grad_fn is None else type(example.grad_fn).__name__
        is_parameter = isinstance(example, torch.nn.Parameter)
        return cls(is_parameter, example.requires_grad, history)

    def put_on(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return ``tensor`` with these marks: itself if it has any of its own."""
        is_one = isinstance(tensor, torch.nn.Parameter) or not self.is_parameter
        if is_one and tensor.requires_grad == self.requires_grad:
            return tensor
        plain = tensor.detach()
        if self.is_parameter:
            return torch.nn.Parameter(plain, self.requires_grad)
        with torch.enable_grad():
            marked = plain.requires_grad_(self.requires_grad)
            return _with_history(marked, self.history) if self.history else marked


def _with_history(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """Return ``tensor`` as the result of an operation called ``name``."""

    class Named(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
            return value.view_as(value)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return gradients[0]

    result: torch.Tensor = Named.apply(tensor)  # type: ignore[no-untyped-call]
    type(result.grad_fn).__name__ = name
    return result
