"""Nodes of a graph that do nothing but set something in the process, or of a tensor.

A function that is given constants alone and returns nothing can do nothing else. The setters that
Dynamo guards or brings back itself are left to the comparison of ``torch_settings``.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.fx import Graph, Node

from bcmend.dynamo import compat
from bcmend.knowledge.targets import packet_of
from bcmend.tracing.effects.operator_runs import target_name


def setter_in(graph: Graph) -> str:
    """Return the name of a function in ``graph`` that sets something; empty if there is none."""
    setters = (each for each in graph.nodes if _sets(each) or _marks(each) or _tells(each))
    return next(map(target_name, setters), "")


def _marks(node: Node) -> bool:
    """Return whether a node begins a block in which tensors are made that stay apart from others.

    What merges the sides is outside of it. Where the whole call is in such a block, all are alike.
    """
    if node.target is not compat._enter_inference_mode or torch.is_inference_mode_enabled():
        return False
    return bool(node.args and node.args[0])


def _tells(node: Node) -> bool:
    """Return whether a node tells a tensor from outside whether it requires gradients."""
    given = node.args[0] if node.args else None
    return node.target == "requires_grad_" and isinstance(given, Node) and given.op == "placeholder"


def _sets(node: Node) -> bool:
    if node.op != "call_function" or node.all_input_nodes or node.users:
        return False
    if node.meta.get("example_value") is not None or node.target in _COMPARED:
        return False
    is_operator = isinstance(node.target, (compat.OpOverload, compat.HigherOrderOperator))
    return not is_operator and packet_of(node.target) is None


#: Setters that may stand in an arm that leaves the setting as it was.
_COMPARED: Final[frozenset[Any]] = frozenset(
    [
        *compat.PAIRED_SETTERS,
        *compat.WITHOUT_EFFECT,
        torch.broadcast_shapes,  # gives a size
        *(torch.set_default_dtype, torch.set_num_threads),
        *(torch.set_autocast_enabled, torch.set_autocast_cache_enabled, torch.clear_autocast_cache),
        *(torch.autocast_increment_nesting, torch.autocast_decrement_nesting),
    ]
)
