"""``x.add(a @ b, alpha=0.2)`` with Inductor, which adds the whole product.

Moving averages are written so (``mean.mul_(0.8).add_(codes.t() @ x, alpha=0.2)``). Inductor is
given a pass that multiplies by the factor first, as it does itself where it lowers such a sum.

Works round the pattern ``addmm`` (torch/_inductor/fx_passes/post_grad.py), which takes a sum for
one without a factor; reproduced on 2.13.0, mended in 2.15. This can go when
``test_a_factor_of_a_product_is_lost`` in ``tests/tracing/backends/test_faults_of_torch.py`` fails
on all releases.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Final

import torch
from torch.fx import Graph, GraphModule, Node

from bcmend.dynamo import compat, hooks
from bcmend.dynamo.models import methods

#: The releases of torch from which on these do not hold, and what works round them can go.
UNTIL: Final = {
    "test_a_factor_of_a_product_is_lost": "2.15",
}
_ADD: Final = torch.ops.aten.add.Tensor
_MULTIPLY: Final = torch.ops.aten.mul.Tensor
#: The setting of a pass over each graph before patterns in it are replaced.
_SETTING: Final = "post_grad_custom_pre_pass"


@hooks.around(compat.OutputGraph, methods.CALL_BACK_END, "sums with a factor", gate=None, place=6)
def _compile(inner: Any, output: compat.OutputGraph, module: GraphModule, *more: Any) -> Any:
    with _multiplied_before(module):
        return inner(output, module, *more)


def _multiplied_before(module: GraphModule) -> Any:
    graphs = (each.graph for each in module.modules() if isinstance(each, GraphModule))
    if not any(_has_factor(node) for graph in graphs for node in graph.nodes):
        return nullcontext()
    before: Any = getattr(compat.inductor_config, _SETTING)

    def apply(graph: Graph) -> None:
        if before is not None:
            before(graph)
        _multiply_before(graph)

    return compat.inductor_config.patch({_SETTING: apply})


def _has_factor(node: Node) -> bool:
    return bool(node.kwargs.get("alpha", 1) != 1)


def _multiply_before(graph: Graph) -> None:
    for node in graph.find_nodes(op="call_function", target=_ADD):
        addend = node.args[1]
        if not _has_factor(node) or not isinstance(addend, Node):
            continue
        with graph.inserting_before(node):
            scaled = graph.call_function(_MULTIPLY, (addend, node.kwargs["alpha"]))
        scaled.meta = {**addend.meta}
        node.args, node.kwargs = (node.args[0], scaled), {}
