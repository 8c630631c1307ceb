"""Items at places that the data say, ``x[places]``, which nobody reads: they fail as in eager.

Dynamo removes an ``operator.getitem`` without users from its graph, though a place may be out of
range. The method of the same name stays.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from bcmend.dynamo import compat, hooks
from bcmend.dynamo.models import methods


@hooks.around(
    compat.OutputGraph,
    methods.CHECK_GRADIENTS_OF_OUTPUTS,
    "items that nobody reads",
    gate=None,
    place=1,
)
def _check(inner: Any, output: Any, results: list[Any], tx: compat.Tracer) -> None:
    """Keep such items when the results of the graph are known."""
    inner(output, results, tx)
    keep_unread(output.graph, (each.as_proxy().node for each in results))


def keep_unread(graph: Graph, results: Iterable[Node]) -> None:
    """Have Dynamo keep what nobody reads and what may fail on the data."""
    read = frozenset(results)
    for node in graph.find_nodes(op="call_function", target=operator.getitem):
        if not node.users and node not in read and _says_places(node.args[1]):
            node.op, node.target = "call_method", "__getitem__"


def _says_places(index: Any) -> bool:
    """Return whether a part of an index is a tensor of places; one of truths cannot fail."""
    found: list[Any] = []
    map_arg(index, lambda node: found.append(node.meta.get("example_value")))
    tensors = (each for each in found if isinstance(each, torch.Tensor))
    return any(each.dtype not in (torch.bool, torch.uint8) for each in tensors)
