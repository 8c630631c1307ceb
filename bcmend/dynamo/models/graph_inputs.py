"""Inputs of the graph: where they come from."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node, Proxy

from bcmend.dynamo import compat


def new_input(
    output: compat.OutputGraph,
    name: str,
    source: compat.Source,
    given: torch.Tensor,
    example: torch.Tensor,
) -> Proxy:
    """Return a new input of the graph of a frame.

    Args:
        given: a tensor like those that the graph will get.
        example: the fake tensor for it.
    """
    proxy: Proxy = output.root_tracer.create_graph_input(name, torch.Tensor, example, source=source)
    proxy.node.meta["grapharg"] = compat.GraphArg(
        source,
        given,
        pass_arg_as_tensor=False,
        fake_tensor=example,  # type: ignore[arg-type]
        is_tensor=True,
        example_strong_ref=given,
    )
    return proxy


def placeholder_for(graph: Graph, name: str, outer: Node) -> Node:
    """Return a placeholder of the graph of an operator for what a node around it gives.

    Dynamo takes the arguments of a call from the nodes of its own graph when the trace ends; what
    stays elsewhere keeps a weak reference to a tensor of the program, which it may ask for.
    """
    placeholder = graph.placeholder(name)
    placeholder.meta.update({key: each for key, each in outer.meta.items() if key != "grapharg"})
    return placeholder


def source_of(node: Node) -> tuple[compat.Source, Any] | None:
    """Return where an input of the graph comes from, and what it is in the call being traced.

    ``None`` for a node that is no input of the whole graph.
    """
    given: Any = node.meta.get("grapharg") if node.op == "placeholder" else None
    if given is None or given.source is None or given.pass_arg_as_tensor:
        return None
    return given.source, given.example


def tensor_models(output: compat.OutputGraph) -> list[Any]:
    """Return the models of all tensors that the graph has been given so far."""
    found = (each.realize() for each in output.input_source_to_var.values())
    return [each for each in found if isinstance(each, compat.TensorVariable)]


def place_drawn(node: Node) -> int | None:
    """Return the place, among the random calls of its frame, of the one that gives an input."""
    found = source_of(node)
    source = None if found is None else found[0]
    return source.random_call_index if isinstance(source, compat.RandomValueSource) else None


def fraction_of(node: Node) -> compat.Source | None:
    """Return where a fraction comes from that the graph is given as a tensor of no dimension.

    Dynamo does so with a fraction that has been another one in an earlier call.
    """
    given: Any = node.meta.get("grapharg") if node.op == "placeholder" else None
    if given is None or given.source is None or not given.pass_arg_as_tensor:
        return None
    example = given.example
    is_fraction = isinstance(example, torch.Tensor) and example.dtype is torch.float64
    return given.source if is_fraction and example.dim() == 0 else None


def expressions_of(source: compat.Source) -> list[str]:
    """Return expressions for what a value is read of, the outermost first, and for itself.

    They are over the tables ``L`` of locals and ``G`` of globals.
    """
    found = [str(source.name)]
    while isinstance(source, compat.ChainedSource):
        source = source.base
        if str(source.name) != found[0]:
            found.insert(0, str(source.name))
    return found


def is_read(source: compat.Source) -> bool:
    """Return whether an input is read of a variable; others the frame makes before its graph."""
    return expressions_of(source)[0].startswith(("L[", "G["))


def item_of_local(local: str, place: int) -> compat.Source:
    """Return the source of an item of a sequence that is in a local variable of the frame."""
    return compat.GetItemSource(compat.LocalSource(local), place)
