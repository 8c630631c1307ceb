"""Choices and loops whose graph is run as it is run their sides like any other code.

Autograd's kernels of the operators trace both sides and their backward anew at each call. A back
end that compiles them never comes to those kernels with numbers; one that does not, such as
"eager", needs no graph of the backward: autograd follows what was computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch.fx import GraphModule

from bcmend.dynamo import compat, hooks

_MARK: Final = "bcmend_side"


def mark(module: GraphModule) -> None:
    """Note that a graph is a side of an operator of ours."""
    module.meta[_MARK] = True


def _can_run(graph: Any, tensors: Sequence[Any]) -> bool:
    """Return whether a graph is one of ours, and nothing but its numbers is asked for."""
    return (
        isinstance(graph, GraphModule)
        and _MARK in graph.meta
        and compat._get_current_dispatch_mode() is None
        and compat.peek_interpreter_stack() is None
        and all(
            type(each) in (torch.Tensor, torch.nn.Parameter)
            for each in tensors
            if isinstance(each, torch.Tensor)
        )
    )


@hooks.kernel(torch.ops.higher_order.cond, "the side that was taken, run by back ends like eager")
def _choose(
    inner: Callable[..., Any], predicate: Any, true: Any, false: Any, operands: Sequence[Any]
) -> Any:
    if _can_run(true, (predicate, *operands)):
        return (true if predicate else false)(*operands)
    return inner(predicate, true, false, operands)


@hooks.kernel(torch.ops.higher_order.while_loop, "iterations, run by back ends like eager")
def _iterate(
    inner: Callable[..., Any],
    condition: Any,
    body: Any,
    carried: Sequence[Any],
    given: Sequence[Any],
    **keywords: Any,
) -> Any:
    if not _can_run(body, (*carried, *given)):
        return inner(condition, body, carried, given, **keywords)
    values = carried
    while condition(*values, *given):
        values = body(*values, *given)
    if values is carried:  # an operator returns no argument of its own
        return tuple(each.clone() if isinstance(each, torch.Tensor) else each for each in carried)
    return values
