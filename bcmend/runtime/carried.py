"""Carried tensors that begin without a gradient and come to have one in a turn of a loop.

``total = 0; while ...: total = total + f(x)``: the backward of ``torch.while_loop`` (torch 2.13,
torch/_higher_order_ops/while_loop.py) takes a carried tensor whose first value requires no gradient
for one that never does, and loses what flows through it from turn to turn. Such a first value is
tied to a tensor that does require one, in a way that gives that tensor a gradient of zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch._dynamo.variables.builder import wrap_fx_proxy
from torch.fx import Node, Proxy

__all__ = ["becoming_differentiable", "tied"]


def becoming_differentiable(
    starts: Mapping[Node, bool], constants: Mapping[Node, bool], ends: Mapping[Node, Node]
) -> set[Node]:
    """Return which carried inputs of a turn require a gradient only from a later turn on.

    Args:
        starts: for each carried input, whether its first value requires a gradient.
        constants: the same for each other input.
        ends: for each carried input, the value that the turn hands on in its place.
    """
    differentiable = {node for node, has in (*starts.items(), *constants.items()) if has}
    while True:
        fresh = {
            start
            for start, end in ends.items()
            if start not in differentiable and _reaches(end, differentiable)
        }
        if not fresh:
            return {node for node in starts if node in differentiable and not starts[node]}
        differentiable |= fresh


def _reaches(node: Node, sources: set[Node]) -> bool:
    """Whether a gradient flows from ``node`` to one of ``sources``."""
    seen: set[Node] = set()
    pending = [node]
    while pending:
        node = pending.pop()
        if node in sources:
            return True
        if node in seen or node.target == "detach" or not _may_have_gradient(node):
            continue
        seen.add(node)
        pending.extend(node.all_input_nodes)
    return False


def _may_have_gradient(node: Node) -> bool:
    example = node.meta.get("example_value")
    if not isinstance(example, torch.Tensor):
        return True  # several results
    return example.is_floating_point() or example.is_complex()


def tied(tx: Any, value: Proxy, anchor: Proxy) -> Proxy:
    """Return ``value``, as a result of ``anchor`` that no gradient reaches."""
    example = value.node.meta["example_value"]

    def call(kind: str, target: Any, *arguments: Any, **keywords: Any) -> Proxy:
        proxy = tx.output.create_proxy(kind, target, arguments, keywords)
        result: Proxy = wrap_fx_proxy(tx, proxy).as_proxy()
        return result

    one = call("call_method", "sum", call("call_method", "reshape", anchor, (-1,)))
    one = call("call_method", "to", one, device=example.device, dtype=example.dtype)
    never = call("call_method", "new_zeros", value, (), dtype=torch.bool)
    return call("call_function", torch.where, never, one, value)
