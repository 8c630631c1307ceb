"""What an operator returns for graphs of one structure, learned once in a trace.

Torch traces both sides of a choice to see what it returns. The layers of a model are alike: what
was seen of the first holds for the others.

Works round ``cond_fake_tensor_mode`` (torch/_higher_order_ops/cond.py), which runs the sides of
every choice on fake tensors, alike or not. Reproduced on torch 2.13.0; no issue is known. This
module can go when ``test_what_a_choice_returns_is_found_out_for_each_that_is_alike`` in
``tests/tracing/backends/test_faults_of_torch.py`` fails.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

import torch
from torch.fx import Graph, Node, Proxy

from bcmend.dynamo import compat, shape_env
from bcmend.dynamo.slots import Slot
from bcmend.tracing.backends import traced_choices
from bcmend.tracing.backends.graph_structure import structure

_MEMORY: Final = Slot(traced_choices.Memory, rolls_back=False)
_RETURNED: Final[Slot[dict[Hashable, tuple[torch.Tensor, ...]]]] = Slot(dict, rolls_back=False)


def called(tx: compat.Tracer, proxy: Proxy, graphs: Sequence[Graph]) -> Any:
    """Return the results of an operator, which is called with ``graphs`` and has tensors."""
    state = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    known, key = _RETURNED.of(tx.output), (state, tuple(of_trace(tx, each) for each in graphs))
    if key in known:
        # Copies, which autograd takes for results of an operation.
        return compat.wrap_fx_proxy(tx, proxy, tuple(each.clone() for each in known[key]))
    memory = _MEMORY.of(tx.output)  # of the choices in them
    with shape_env.taken_back(tx.output.shape_env), traced_choices.remembered(memory):
        # torch traces the graphs here
        results: Any = compat.wrap_fx_proxy(tx, proxy)
    examples = proxy.node.meta["example_value"]
    if all(compat.is_non_overlapping_and_dense_or_false(each) for each in examples):
        known[key] = tuple(examples)
    return results


def of_trace(tx: compat.Tracer, graph: Graph) -> Hashable:
    """Return what a graph of Dynamo's does and what it is given, without the names in it."""
    return of_modules(tx.output.nn_modules, graph)


def of_modules(modules: Mapping[str, Any], graph: Graph) -> Hashable:
    """Return what a graph does that has its operators' graphs from ``modules``."""

    def attribute(node: Node) -> Hashable:
        module: Any = modules.get(str(node.target))
        inner = getattr(module, "graph", None)
        return node.target if inner is None else of_modules(module._modules, inner)

    return structure(graph, lambda node: node.meta.get("example_value"), attribute)
