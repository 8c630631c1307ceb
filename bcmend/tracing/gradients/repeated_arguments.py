"""A function of autograd's that is given one tensor as two arguments.

Dynamo has one input of its graph for both, and wants the one gradient that belongs to it. Where its
backward function gives a gradient for at most one of the arguments, that is the one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from bcmend.dynamo import compat, hooks
from bcmend.dynamo.models import methods
from bcmend.dynamo.values import Value, constant


@hooks.around(
    compat.AutogradFunctionApplyVariable,
    methods.REWIRE_BACKWARD,
    "one tensor as two arguments of a function of autograd's",
    gate=lambda *_: compat.translator_tls.current_tx,
)
def _rewire(
    inner: Any,
    variable: Any,
    outer: Any,
    gradients: Value,
    graph: torch.fx.Graph,
    inputs: Any,
    arguments: Sequence[Value],
) -> Any:
    if isinstance(gradients, compat.BaseListVariable) and len(gradients.items) == len(arguments):
        arguments = _each_once(arguments, gradients.items)
    return inner(variable, outer, gradients, graph, inputs, arguments)


def _each_once(arguments: Sequence[Value], gradients: Sequence[Value]) -> list[Value]:
    """Return arguments with ``None`` in place of a tensor that stands there again.

    What the gradient is given for stays. Where several are, all do, and Dynamo refuses the call: in
    which order they would be added to others is not known.
    """
    found = list(arguments)
    for same in _alike(arguments).values():
        given = [at for at in same if gradients[at].is_tensor()]
        if len(given) <= 1:
            for at in same:
                if at != (given or same)[0]:
                    found[at] = constant(None)
    return found


def _alike(arguments: Sequence[Value]) -> dict[int, list[int]]:
    """Return the places of each tensor among arguments."""
    places: dict[int, list[int]] = {}
    for at, each in enumerate(arguments):
        if each.is_tensor():
            example = each.as_proxy().node.meta.get("example_value")
            places.setdefault(id(example), []).append(at)
    return places
