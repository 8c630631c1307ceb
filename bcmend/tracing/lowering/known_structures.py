"""What an operator returns for graphs of one structure, learned once in a trace.

Torch traces both sides of a choice, and their backward, to see what it returns. The layers of a
model are alike: what was seen of the first holds for the others.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

import torch
from torch.fx import Graph, Node, Proxy
from torch.fx.node import map_arg

from bcmend.dynamo import compat, shape_env
from bcmend.dynamo.slots import Slot

_RETURNED: Final[Slot[dict[Hashable, tuple[torch.Tensor, ...]]]] = Slot(dict)


def called(tx: compat.Tracer, proxy: Proxy, graphs: Sequence[Graph]) -> Any:
    """Return the results of an operator, which is called with ``graphs`` and has tensors."""
    known, key = _RETURNED.of(tx.output), _key(tx, graphs)
    if key in known:
        # Copies, which autograd takes for results of an operation.
        return compat.wrap_fx_proxy(tx, proxy, tuple(each.clone() for each in known[key]))
    with shape_env.taken_back(tx.output.shape_env):  # torch traces the graphs here
        results: Any = compat.wrap_fx_proxy(tx, proxy)
    examples = proxy.node.meta["example_value"]
    if all(compat.is_non_overlapping_and_dense_or_false(each) for each in examples):
        known[key] = tuple(examples)
    return results


def _key(tx: compat.Tracer, graphs: Sequence[Graph]) -> Hashable:
    """Return what graphs do and what they are given, without the names in them."""
    state = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    return state, tuple(_structure(tx, each) for each in graphs)


def _structure(tx: compat.Tracer, graph: Graph) -> Hashable:
    numbers: dict[Node, str] = {}
    found: list[Hashable] = []
    for node in graph.nodes:
        numbers[node] = f"%{len(numbers)}"
        given: Any = map_arg((node.args, node.kwargs), lambda each: _Number(numbers[each]))
        target: Hashable = node.target
        if node.op == "placeholder":
            target = given = None
        elif node.op == "get_attr":
            inner = getattr(tx.output.nn_modules.get(str(node.target)), "graph", None)
            target = node.target if inner is None else _structure(tx, inner)
        found.append((node.op, target, repr(given), _form(node.meta.get("example_value"))))
    return tuple(found)


class _Number(str):
    """Stands for a node."""

    def __repr__(self) -> str:
        return str(self)


def _form(example: Any) -> Hashable:
    """Return all that torch sees of an example but its numbers."""
    if isinstance(example, (tuple, list)):
        return tuple(map(_form, example))
    if not isinstance(example, torch.Tensor):
        return type(example), str(example)
    parts: tuple[Any, ...] = (example.layout, example.device, example.dtype, example.requires_grad)
    if example.layout is torch.strided:
        parts += (str(example.size()), str(example.stride()), str(example.storage_offset()))
        parts += (example.is_conj(), example.is_neg(), example.is_inference())
    return type(example), *parts
