"""Values of a record that are computed only if it is delivered."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.fx import Graph, GraphModule

from bcmend.delivery.numbered import Numbered


class LazyGraph:
    """A graph that computes values of records; compiled to a module on the first call."""

    def __init__(self, graph: Graph) -> None:
        for node in graph.nodes:
            node.meta.clear()  # of the trace, which ends
        self._graph = graph
        self._module: GraphModule | None = None

    def __call__(self, *inputs: Any) -> Any:
        if self._module is None:
            self._module = GraphModule({}, self._graph)
        with torch.no_grad():
            return self._module(*inputs)


GRAPHS: Final[Numbered[LazyGraph]] = Numbered()


def computed(
    number: int, position: int, is_number: bool, inputs: tuple[Any, ...], known: dict[Any, Any]
) -> Any:
    """Return one value; ``known`` has the results of graphs that ran for the same record."""
    key = (LazyGraph, number)
    if key not in known:
        known[key] = GRAPHS[number](*inputs)
    result = known[key][position]
    return result.item() if is_number else result
