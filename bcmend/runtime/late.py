"""Values of a record that are computed when it is delivered, if it is.

In place of such a value a record holds a tuple (mark, number of a graph, position of the value
among the graph's results, whether the number in it is wanted, what the graph reads). The graph runs
on the tensors of the moment, which the record keeps, and only where the record's condition holds.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.fx import Graph, GraphModule

from bcmend.names import PREFIX

__all__ = ["MARK", "add", "computed", "is_late"]

#: The first item of the tuple that stands for a value.
MARK: Final = f"{PREFIX}late"

#: The graphs; those that have been run once as what runs them.
_GRAPHS: Final[list[Graph | GraphModule]] = []


def add(graph: Graph) -> int:
    """Return the number under which records name a graph."""
    for node in graph.nodes:
        node.meta.clear()  # of the trace, which ends
    _GRAPHS.append(graph)
    return len(_GRAPHS) - 1


def is_late(value: object) -> bool:
    """Whether ``value`` stands for one that is yet to be computed."""
    return type(value) is tuple and len(value) == 5 and type(value[0]) is str and value[0] == MARK


def computed(value: tuple[str, int, int, bool, tuple[Any, ...]], known: dict[Any, Any]) -> Any:
    """Return the value; ``known`` has what graphs have given since the record is being read."""
    _, number, position, is_number, given = value
    if (MARK, number) not in known:
        with torch.no_grad():
            known[MARK, number] = _runner(number)(*given)
    result = known[MARK, number][position]
    return result.item() if is_number else result


def _runner(number: int) -> GraphModule:
    found = _GRAPHS[number]
    if isinstance(found, Graph):
        found = _GRAPHS[number] = GraphModule({}, found)
    return found
