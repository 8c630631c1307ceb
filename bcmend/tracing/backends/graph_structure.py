"""What a graph does, without the names in it: graphs that are alike are compiled alike."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg


def structure(
    graph: Graph, example: Callable[[Node], Any], attribute: Callable[[Node], Hashable]
) -> Hashable:
    """Return what ``graph`` does.

    Args:
        example: returns what tracing found a node to be.
        attribute: returns what tells the attributes apart that nodes get.
    """
    numbers: dict[Node, str] = {}
    found: list[Hashable] = []
    for node in graph.nodes:
        numbers[node] = f"%{len(numbers)}"
        given: Any = map_arg((node.args, node.kwargs), lambda each: _Number(numbers[each]))
        target: Hashable = node.target
        if node.op == "placeholder":
            target = given = None
        elif node.op == "get_attr":
            target = attribute(node)
        found.append((node.op, target, repr(given), form_of_example(example(node))))
    return tuple(found)


class _Number(str):
    """Stands for a node."""

    def __repr__(self) -> str:
        return str(self)


def form_of_example(example: Any) -> Hashable:
    """Return all that torch sees of an example but its numbers."""
    if isinstance(example, (tuple, list)):
        return tuple(map(form_of_example, example))
    if not isinstance(example, torch.Tensor):
        return type(example), str(example)
    parts: tuple[Any, ...] = (example.layout, example.device, example.dtype, example.requires_grad)
    if example.layout is torch.strided:
        parts += (str(example.size()), str(example.stride()), str(example.storage_offset()))
        parts += (example.is_conj(), example.is_neg(), example.is_inference())
    return type(example), *parts
