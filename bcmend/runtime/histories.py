"""What a tensor in a message shows of its history: ``grad_fn=<MulBackward0>``.

A tensor that leaves a compiled graph has the history of the graph, under one name, and a copy that
of a copy. While Dynamo traces, autograd runs on fake tensors, which have the history of eager
execution. Its name is recorded beside the tensor, and the delivery of output gives the tensor a
history of that name.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction

from bcmend.names import PREFIX

__all__ = ["MARK", "is_marked", "name_of", "pass_on", "restored"]

#: The first item of the tuple (mark, name of the history, tensor).
MARK: Final = f"{PREFIX}history"
#: The names of those that have none: a tensor, and a parameter.
_LEAF: Final = "leaf"
_PARAMETER: Final = "parameter"
#: The attribute of a fake tensor with the name of another one's history.
_NAME: Final = "_bcmend_history"


def name_of(example: Tensor) -> str | None:
    """Return the name of the history of a fake tensor; ``None`` if it requires no gradients."""
    if not example.requires_grad:
        return None
    passed_on: str | None = getattr(example, _NAME, None)
    if passed_on is not None:
        return passed_on
    if example.grad_fn is not None:
        return type(example.grad_fn).__name__
    return _PARAMETER if isinstance(example, torch.nn.Parameter) else _LEAF


def pass_on(example: Tensor, other: Tensor) -> None:
    """Have a fake tensor shown as another one, of which it is a form that no program sees."""
    name = name_of(example)
    if name is not None and example.grad_fn is not None:
        setattr(other, _NAME, name)


def is_marked(value: object) -> bool:
    """Whether ``value`` is a tensor whose history has another name."""
    return type(value) is tuple and len(value) == 3 and type(value[0]) is str and value[0] == MARK


def restored(marked: tuple[str, str, Tensor]) -> Tensor:
    """Return the tensor, with a history of the name."""
    _, name, tensor = marked
    plain = tensor.detach()
    if name == _PARAMETER:
        return torch.nn.Parameter(plain)
    if name == _LEAF:
        return plain.requires_grad_()
    with torch.enable_grad():
        shown: Tensor = _function_named(name).apply(plain.requires_grad_())
    return shown


@lru_cache(maxsize=256)
def _function_named(name: str) -> Any:
    """Return an identity function whose results show ``name`` as their ``grad_fn``."""

    class Shown(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, given: Tensor) -> Tensor:
            return given.view_as(given)

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return gradient

    made: Any = Shown
    facts = {"_forward_cls": Shown}
    facts["_autograd_function_id"] = made._backward_cls._autograd_function_id
    made._backward_cls = type(name, (BackwardCFunction,), facts)
    return made
