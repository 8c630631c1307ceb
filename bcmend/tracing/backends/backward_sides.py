"""The backward of a choice: of each side a graph that gives the gradients of what it reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cmp_to_key
from typing import Any

import torch
from torch.fx import GraphModule

from bcmend import meta_keys
from bcmend.dynamo import compat
from bcmend.dynamo.shape_env import computed_again


def with_gradients(
    side: Callable[..., Any], wanted: Sequence[bool]
) -> Callable[..., tuple[Sequence[Any], list[torch.Tensor]]]:
    """Return a function over what a side reads and the gradients of its results.

    It returns the results and the gradients of the inputs of which those are ``wanted``.
    """

    def joint(*arguments: Any) -> tuple[Sequence[Any], list[torch.Tensor]]:
        inputs = [
            each.detach().requires_grad_(needs) if isinstance(each, torch.Tensor) else each
            for each, needs in zip(arguments, wanted, strict=False)
        ]
        asked = [each for each, needs in zip(inputs, wanted, strict=True) if needs]
        results = side(*inputs)
        pairs = [
            (result, laid_out(gradient, result))
            for result, gradient in zip(results, arguments[len(wanted) :], strict=True)
            if isinstance(result, torch.Tensor) and result.requires_grad
        ]
        found: Sequence[Any] = [None] * len(asked)
        if pairs:
            made, gradients = zip(*pairs, strict=True)
            found = torch.autograd.grad(made, asked, gradients, allow_unused=True)
        with torch.no_grad():
            return results, [laid_out(*pair) for pair in zip(found, asked, strict=True)]

    return joint


def backward_of(
    side: Callable[..., Any],
    given: Sequence[Any],
    wanted: Sequence[bool],
    dispatch: tuple[Any, Any],
) -> GraphModule:
    """Return a graph of the gradients alone, which computes the results of a side once more.

    Args:
        given: examples of what the side reads, and of the gradients of its results.
        wanted: for each input of the side, whether its gradient is.
        dispatch: the dispatch keys that were included and excluded when the side was traced.
    """
    joint = with_gradients(side, wanted)

    def backward(*arguments: Any) -> tuple[torch.Tensor, ...]:
        return apart(arguments, joint(*arguments)[1])

    functional = compat.dispatch_functionalize(backward, compat.FunctionalTensorMode())
    made: GraphModule = compat.materialize_as_graph(
        functional, tuple(given), *dispatch, force_enable_grad=True
    )
    setattr(made, meta_keys.PURE, True)
    return made


def apart(arguments: Sequence[Any], results: Sequence[Any]) -> tuple[Any, ...]:
    """Return results that are none of the arguments, and none another, as an operator has to."""
    return tuple(compat._clone_aliasing_output(arguments, results))


def laid_out(given: torch.Tensor | None, value: torch.Tensor) -> torch.Tensor:
    """Return ``given``, zeros for ``None``, in rows: dense, the dimensions in the order of a value.

    Both sides of a choice return it so.
    """
    if given is None:
        return in_rows(torch.zeros, value)
    order = order_in_memory(value)
    ordered = given.permute(order)
    if _is_laid_out_in_rows(ordered) and not given.is_conj() and not given.is_neg():
        return given
    copy = ordered.clone(memory_format=torch.contiguous_format)
    return copy.permute(inverse(order))


def in_rows(make: Callable[..., torch.Tensor], value: torch.Tensor) -> torch.Tensor:
    """Return what ``make`` makes of a size, in the form in which ``laid_out`` returns a value."""
    order = order_in_memory(value)
    size = [computed_again(value.shape[at]) for at in order]
    made = make(size, dtype=value.dtype, device=value.device)
    return made.permute(inverse(order))


def _is_laid_out_in_rows(tensor: torch.Tensor) -> bool:
    """Return whether it is contiguous with the usual strides in dimensions of one item as well."""
    with _beside_the_graph(tensor):
        if not compat.statically_known_true(tensor.storage_offset() == 0):
            return False
        expected: Any = 1
        for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
            if not compat.statically_known_true(stride == expected):
                return False
            expected = expected * size
        return True


def inverse(order: Sequence[int]) -> list[int]:
    """Return where each dimension is in ``order``: what puts dimensions in that order back."""
    return [order.index(dimension) for dimension in range(len(order))]


def order_in_memory(example: torch.Tensor) -> list[int]:
    """Return the dimensions by descending stride; as they come where nothing is known of two."""
    strides = example.stride()

    def compare(one: int, other: int) -> int:
        left, right = strides[one], strides[other]
        if compat.statically_known_true(left > right):
            return -1
        return int(compat.statically_known_true(left < right))

    with _beside_the_graph(example):
        return sorted(range(example.dim()), key=cmp_to_key(compare))


def _beside_the_graph(tensor: torch.Tensor) -> AbstractContextManager[Any]:
    """For the length of a block nothing that is computed of sizes is put into a graph.

    Of another graph's size torch would put one there that later sizes of that value become, with a
    product of three factors as in ``computed_again``.
    """
    is_plain = all(type(each) is int for each in (*tensor.size(), *tensor.stride()))
    found: AbstractContextManager[Any] = nullcontext()
    return found if is_plain else compat._disable_current_modes()
