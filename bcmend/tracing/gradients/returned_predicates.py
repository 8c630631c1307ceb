"""Makes a complete graph return predicates, those of branches within arms included."""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from bcmend.tracing.gradients.gradient_flow import Inside


def handed_out(
    module: GraphModule, asked: Sequence[tuple[Node, Inside]], fake_mode: Any
) -> tuple[list[int], int]:
    """Append predicates to the results of ``module``, in one tensor for each device.

    Returns their order there, and how many results there are more.
    """
    known: dict[tuple[Node, Inside], Node] = {}
    by_device: dict[torch.device, list[int]] = defaultdict(list)
    nodes = []
    for at, (predicate, inside) in enumerate(asked):
        by_device[predicate.meta["example_value"].device].append(at)
        nodes.append(in_the_main_graph(module, predicate, inside, known))
    graph = module.graph
    output: Any = graph.output_node()
    tensors = []
    with graph.inserting_before(output):
        for alike in by_device.values():
            tensors.append(_call(graph, fake_mode, torch.stack, [nodes[at] for at in alike]))
    output.args = ((*output.args[0], *tensors),)
    module.recompile()
    return [at for alike in by_device.values() for at in alike], len(tensors)


def in_the_main_graph(
    module: GraphModule, predicate: Node, inside: Inside, known: dict[tuple[Node, Inside], Node]
) -> Node:
    """Return a predicate as a value of the main graph; that of an arm not taken is false there."""
    key = predicate, inside
    if key not in known:
        if not inside:
            known[key] = predicate
        else:
            *around, (cond, side) = inside
            outer = _handed_out_of_arm(_owner(module, tuple(around)), cond, side, predicate)
            known[key] = in_the_main_graph(module, outer, tuple(around), known)
    return known[key]


def _owner(module: GraphModule, inside: Inside) -> GraphModule:
    """Return the graph of an arm as a module."""
    for cond, side in inside:
        module = _arm(module, cond, side)
    return module


def _arm(module: GraphModule, cond: Node, side: bool) -> GraphModule:
    given: Any = cond.args[1 if side else 2]
    found = getattr(module, given.target)
    assert isinstance(found, GraphModule)
    return found


def _handed_out_of_arm(owner: GraphModule, cond: Node, side: bool, predicate: Node) -> Node:
    """Have ``torch.cond`` return a predicate of one arm; the other arm returns false.

    It goes as a floating number, since the backward of the operator miscounts others.
    """
    example = predicate.meta["example_value"]
    place = 0
    for each in (True, False):
        arm = _arm(owner, cond, each)
        output: Any = arm.graph.output_node()
        with arm.graph.inserting_before(output):
            if each is side:
                number = arm.graph.call_method("to", (predicate, torch.float32))
            else:
                more = {"dtype": torch.float32, "device": example.device}
                number = arm.graph.call_function(torch.zeros, ((),), more)
        place = len(output.args[0])
        output.args = ((*output.args[0], number),)
        arm.recompile()
    with owner.graph.inserting_after(cond):
        number = owner.graph.call_function(operator.getitem, (cond, place))
    with owner.graph.inserting_after(number):
        found = owner.graph.call_function(torch.ne, (number, 0))
    found.meta["example_value"] = example
    return found


def _call(graph: Graph, fake_mode: Any, function: Any, given: list[Node]) -> Node:
    node = graph.call_function(function, (given,))
    with fake_mode, torch.no_grad():
        node.meta["example_value"] = function([each.meta["example_value"] for each in given])
    return node
