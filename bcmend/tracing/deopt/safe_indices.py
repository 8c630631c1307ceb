"""Operations on an accelerator that would fail behind a check: they are given inputs that are safe.

On the CPU an index out of range raises, and the call is made again in eager. On a GPU a kernel that
asserts ends the context of the process, so that nothing is computed any more. Where a check of the
program has failed before, eager execution never comes to that operation: its integers become zero
there, and its probabilities a half. What the graph computes then is discarded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from bcmend.dynamo import compat, fx_graph
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.trace_state import Phase, at_the_end_of_a_graph
from bcmend.dynamo.values import Value
from bcmend.tracing.effects.hazards import hazards_of, unjudged
from bcmend.tracing.effects.operator_runs import (
    is_in_place,
    storage_of,
    storages_of,
    target_name,
    tensors_of,
)

#: Operators that assert that fractions which they are given are probabilities, or not negative.
_OF_PROBABILITIES: Final = frozenset("bernoulli multinomial binary_cross_entropy poisson".split())

#: What is true where the results of the graph are discarded: 0-d boolean tensors.
_CONDITIONS: Final[Slot[list[Value]]] = Slot(list, rolls_back=True)

#: What is true where a check has failed, for each device.
_Failed = dict[torch.device, Node]


def is_discarded_if(tx: compat.Tracer, predicate: Value) -> None:
    """Note that the results of the graph being traced are discarded where ``predicate`` holds."""
    output = tx.output
    known = _CONDITIONS.of(output)
    if not known:
        at_the_end_of_a_graph(output, Phase.EDIT, lambda module: _make_safe(output, module))
    known.append(predicate)


def discarded_if(tx: compat.Tracer) -> tuple[Value, ...]:
    """Return the conditions that were noted, each of which has the results discarded."""
    return tuple(_CONDITIONS.of(tx.output))


def asserts_on(device: torch.device) -> bool:
    """Return whether an operation that fails on the data on ``device`` ends its context."""
    return device.type not in ("cpu", "meta")


def _make_safe(output: compat.OutputGraph, module: GraphModule) -> None:
    nodes = (each.as_proxy().node for each in _CONDITIONS.of(output))
    conditions = {each for each in nodes if asserts_on(each.meta["example_value"].device)}
    if not conditions:
        return
    failed: _Failed = {}
    for node in list(module.graph.nodes):
        if failed and node.op in ("call_function", "call_method"):
            _give_safe_inputs(output, module, node, failed)
        if node in conditions:
            _note_condition(node, failed)
    module.recompile()


def _note_condition(node: Node, failed: _Failed) -> None:
    """Have ``failed`` say that one more check may have failed; no device is waited for."""
    device = node.meta["example_value"].device
    known = failed.get(device)
    if known is not None:
        with node.graph.inserting_after(node):
            joined = node.graph.call_function(torch.logical_or, (known, node))
        joined.meta = unjudged(node.meta)
        node = joined  # the conditions have one form, and nobody changes one
    failed[device] = node


def _give_safe_inputs(
    output: compat.OutputGraph, module: GraphModule, node: Node, failed: _Failed
) -> None:
    """Give a node that may fail other inputs where a check has failed."""
    given = dict(_integers_of(node, failed))
    if not given and target_name(node) not in _OF_PROBABILITIES:
        return
    inside = fx_graph.graphs_given(node, module._modules)
    if inside and (
        node.target is not torch.ops.higher_order.cond or any(map(_changes_something, inside))
    ):
        return
    if not _may_fail(output, module, node, inside):
        return
    if target_name(node) in _OF_PROBABILITIES:
        given.update(_probabilities_of(node, failed))
    with node.graph.inserting_before(node), output.fake_mode:
        safe = {each: _where_not(failed, each, instead) for each, instead in given.items()}
    node.args = map_arg(node.args, lambda each: safe.get(each, each))
    node.kwargs = map_arg(node.kwargs, lambda each: safe.get(each, each))


def _may_fail(
    output: compat.OutputGraph, module: GraphModule, node: Node, inside: list[GraphModule]
) -> bool:
    nodes = [each for one in inside for each in one.graph.nodes] or [node]
    return bool(hazards_of(nodes, output.fake_mode, module._modules).partial)


def _changes_something(module: GraphModule) -> bool:
    return any(
        each.op in ("call_function", "call_method") and is_in_place(each)
        for each in module.graph.nodes
    )


def _integers_of(node: Node, failed: _Failed) -> Iterator[tuple[Node, float]]:
    """Yield the integer tensors that a node only reads and does not give a view of."""
    kept = storages_of(node)
    if is_in_place(node):
        kept |= {key for each in _first_of(node) for key in storages_of(each)}
    for each in node.all_input_nodes:
        example = each.meta.get("example_value")
        if (
            isinstance(example, torch.Tensor)
            and example.device in failed
            and not (example.is_floating_point() or example.is_complex())
            and example.dtype is not torch.bool
            and storage_of(example) not in kept
        ):
            yield each, 0


def _probabilities_of(node: Node, failed: _Failed) -> Iterator[tuple[Node, float]]:
    for each in node.all_input_nodes:
        parts = tensors_of(each)
        if len(parts) == 1 and parts[0].device in failed and parts[0].is_floating_point():
            yield each, 0.5


def _first_of(node: Node) -> list[Node]:
    found: Any = next(iter((*node.args, *node.kwargs.values())), None)
    return [found] if isinstance(found, Node) else []


def _where_not(failed: _Failed, node: Node, instead: float) -> Node:
    """Return a node that is ``instead`` where a check has failed, and else what ``node`` is."""
    example = node.meta["example_value"]
    holds = failed[example.device]
    made = node.graph.call_function(torch.masked_fill, (node, holds, instead))
    made.meta = unjudged(node.meta)
    made.meta["example_value"] = torch.masked_fill(example, holds.meta["example_value"], instead)
    return made
