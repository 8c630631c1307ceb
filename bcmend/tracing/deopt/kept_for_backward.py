"""Keep for the backward pass what is computed from arguments that the graph changes in place.

The partitioner of AOTAutograd takes an argument for something that stays as it is, also one that
the graph changes, and computes again from its new contents what the backward needs of the old ones
(https://github.com/pytorch/pytorch/pull/197039; reproduced on 2.13.0). Where stock breaks the graph
between the two, its gradients are right.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import torch
from torch.fx import GraphModule, Node
from torch.utils.checkpoint import CheckpointPolicy

from bcmend.dynamo import compat
from bcmend.dynamo.trace_state import Phase, at_the_end_of_a_graph
from bcmend.tracing.deopt.undo_log import changed_inputs, examples_of
from bcmend.tracing.effects.change_counts import statistics_of
from bcmend.tracing.effects.operator_runs import is_in_place, stand_in, storage_of, storages_of

_NUMBERS: Final = (torch.SymInt, torch.SymFloat, torch.SymBool)
#: What a node says of the line that it is for.
_OF_A_PLACE: Final = ("stack_trace", "nn_module_stack", "source_fn_stack")


def note(output: compat.OutputGraph) -> None:
    """Have the graph being traced examined when it is complete; asked for once a trace."""
    at_the_end_of_a_graph(output, Phase.EDIT, lambda module: _keep_what_was_read(output, module))


def _keep_what_was_read(output: compat.OutputGraph, module: GraphModule) -> None:
    changed = {storage_of(each) for each in examples_of(changed_inputs(output))}
    # Statistics of norms are no part of what a backward reads.
    written = [node for node in module.graph.nodes if _writes(node)]
    changed &= {storage for node in written for storage in _storages_behind(node)}
    if changed:
        _copy_what_numbers_are_read_from(output, module, changed)
        keep(filter(_is_call, module.graph.nodes), changed)


def keep(nodes: Iterable[Node], changed: set[int]) -> None:
    """Keep for the backward what nodes compute from changed storages and leave elsewhere."""
    for node in nodes:
        if _storages_behind(node) & changed and not storages_of(node) & changed:
            node.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def _copy_what_numbers_are_read_from(
    output: compat.OutputGraph, module: GraphModule, changed: set[int]
) -> None:
    """Read numbers in copies of changed tensors: the backward gets a tensor, and never a number."""
    graph = module.graph
    read = [each for each in graph.nodes if _is_number(each) and _storages_behind(each) & changed]
    for node in read:
        for tensor in filter(storages_of, node.all_input_nodes):
            with graph.inserting_before(node):
                # Inductor takes a clone out again.
                copied = graph.call_function(torch.maximum, (tensor, tensor))
            copied.meta = {key: node.meta[key] for key in _OF_A_PLACE if key in node.meta}
            with output.fake_mode:
                copied.meta["example_value"] = stand_in(tensor.meta["example_value"])
            node.replace_input_with(tensor, copied)
    if read:
        module.recompile()


def _is_number(node: Node) -> bool:
    return _is_call(node) and isinstance(node.meta.get("example_value"), _NUMBERS)


def _is_call(node: Node) -> bool:
    return node.op in ("call_function", "call_method")


def _writes(node: Node) -> bool:
    return _is_call(node) and not statistics_of(node) and is_in_place(node)


def _storages_behind(node: Node) -> set[int]:
    return {storage for each in node.all_input_nodes for storage in storages_of(each)}
