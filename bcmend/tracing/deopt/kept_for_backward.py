"""Keep for the backward pass what is computed from arguments that the graph changes in place.

The partitioner of AOTAutograd takes an argument for something that stays as it is, also one that
the graph changes, and computes again from its new contents what the backward needs of the old ones
(https://github.com/pytorch/pytorch/pull/197039; reproduced on 2.13.0). Where stock breaks the graph
between the two, its gradients are right.
"""

from __future__ import annotations

from typing import Final

import torch
from torch.fx import GraphModule, Node
from torch.utils.checkpoint import CheckpointPolicy

from bcmend.dynamo import compat
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.trace_state import Phase, at_the_end_of_a_graph
from bcmend.tracing.deopt.undo_log import changed_inputs, examples_of
from bcmend.tracing.effects.change_counts import statistics_of
from bcmend.tracing.effects.operator_runs import is_in_place, storage_of

_IS_NOTED: Final = Slot(bool, rolls_back=False)


def note(output: compat.OutputGraph) -> None:
    """Have the graph being traced examined when it is complete, once a trace."""
    if not _IS_NOTED.of(output):
        _IS_NOTED.put(output, True)
        at_the_end_of_a_graph(output, Phase.EDIT, lambda module: _keep(output, module))


def _keep(output: compat.OutputGraph, module: GraphModule) -> None:
    changed = {storage_of(each) for each in examples_of(changed_inputs(output))}
    # Statistics of norms are no part of what a backward reads.
    written = [node for node in module.graph.nodes if _writes(node)]
    changed &= {storage for node in written for storage in _storages_behind(node)}
    if not changed:
        return
    for node in module.graph.nodes:
        if node.op not in ("call_function", "call_method"):
            continue
        reads = any(changed & _storages(each) for each in node.all_input_nodes)
        if reads and not changed & _storages(node):
            node.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def _writes(node: Node) -> bool:
    is_call = node.op in ("call_function", "call_method")
    return is_call and not statistics_of(node) and is_in_place(node)


def _storages_behind(node: Node) -> set[int]:
    return {storage for each in node.all_input_nodes for storage in _storages(each)}


def _storages(node: Node) -> set[int]:
    return {storage_of(each) for each in examples_of([node]) if isinstance(each, torch.Tensor)}
