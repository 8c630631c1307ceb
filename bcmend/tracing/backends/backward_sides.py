"""The backward of a choice: of each side a graph that gives the gradients of what it reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cmp_to_key
from typing import Any

import torch
from torch.fx import GraphModule

from bcmend.dynamo import compat


def backward_of(
    side: Callable[..., Any],
    given: Sequence[Any],
    wanted: Sequence[bool],
    dispatch: tuple[Any, Any],
) -> GraphModule:
    """Return a graph over what a side reads and the gradients of its results.

    Args:
        given: examples of those.
        wanted: for each input of the side, whether its gradient is.
        dispatch: the dispatch keys that were included and excluded when the side was traced.
    """
    count = len(wanted)

    def backward(*arguments: Any) -> tuple[torch.Tensor, ...]:
        inputs = [
            each.detach().requires_grad_(needs) if isinstance(each, torch.Tensor) else each
            for each, needs in zip(arguments, wanted, strict=False)
        ]
        asked = [each for each, needs in zip(inputs, wanted, strict=True) if needs]
        pairs = [
            (result, gradient)
            for result, gradient in zip(side(*inputs), arguments[count:], strict=True)
            if isinstance(result, torch.Tensor) and result.requires_grad
        ]
        found: Sequence[Any] = [None] * len(asked)
        if pairs:
            results, gradients = zip(*pairs, strict=True)
            found = torch.autograd.grad(results, asked, gradients, allow_unused=True)
        with torch.no_grad():
            laid_out = [_laid_out(*pair) for pair in zip(found, asked, strict=True)]
            # An operator returns none of its arguments, and nothing twice.
            return tuple(compat._clone_aliasing_output(arguments, laid_out))

    made: GraphModule = compat.materialize_as_graph(
        backward, tuple(given), *dispatch, force_enable_grad=True
    )
    return made


def _laid_out(gradient: torch.Tensor | None, read: torch.Tensor) -> torch.Tensor:
    """Return a gradient with the layout that it has on both sides: that of what was read."""
    if gradient is None:
        return _dense(torch.zeros_like(read), read)
    return _dense(gradient, read)


def _dense(gradient: torch.Tensor, read: torch.Tensor) -> torch.Tensor:
    order = order_in_memory(read)
    ordered = gradient.permute(order)
    if _is_laid_out_in_rows(ordered) and not gradient.is_conj() and not gradient.is_neg():
        return gradient
    places = [order.index(dimension) for dimension in range(len(order))]
    return ordered.clone(memory_format=torch.contiguous_format).permute(places)


def _is_laid_out_in_rows(tensor: torch.Tensor) -> bool:
    """Return whether it is contiguous with the usual strides in dimensions of one item as well."""
    expected: Any = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        if not compat.statically_known_true(stride == expected):
            return False
        expected = expected * size
    return True


def order_in_memory(example: torch.Tensor) -> list[int]:
    """Return the dimensions by descending stride; as they come where nothing is known of two."""
    strides = example.stride()

    def compare(one: int, other: int) -> int:
        left, right = strides[one], strides[other]
        if compat.statically_known_true(left > right):
            return -1
        return int(compat.statically_known_true(left < right))

    return sorted(range(example.dim()), key=cmp_to_key(compare))
