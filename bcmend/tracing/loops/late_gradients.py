"""Carried tensors that begin without a gradient and get one in an iteration of a loop.

``WhileLoopAutogradOp.backward`` (torch/_higher_order_ops/while_loop.py) takes a carried tensor of
which the first value requires no gradient for one that never does: the inputs of all its iterations
get the ``requires_grad`` of the first. Such a first value is tied to a tensor that does require
one, in a way that gives that tensor a gradient of zero. Reproduced on torch 2.13.0;
``tests/tracing/backends/test_faults_of_torch.py`` fails when it is gone.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.fx import Node, Proxy

from bcmend.dynamo import compat, fx_graph


def becoming_differentiable(
    starts: Mapping[Node, bool], constants: Mapping[Node, bool], ends: Mapping[Node, Node]
) -> set[Node]:
    """Return which carried inputs require a gradient only from a later iteration on.

    ``starts`` says for each carried input whether its first value requires a gradient, and
    ``constants`` for each other input; ``ends`` maps carried inputs to what is passed on for them.
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
    """Return whether a gradient flows from ``node`` to one of ``sources``."""
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


def tied(tx: compat.Tracer, value: Proxy, anchor: Proxy) -> Proxy:
    """Return ``value``, as a result of ``anchor`` that no gradient reaches."""
    example = value.node.meta["example_value"]
    one = fx_graph.method(tx, "sum", fx_graph.method(tx, "reshape", anchor, (-1,)))
    one = fx_graph.method(tx, "to", one, device=example.device, dtype=example.dtype)
    never = fx_graph.method(tx, "new_zeros", value, (), dtype=torch.bool)
    return fx_graph.function(tx, torch.where, never, one, value).as_proxy()
