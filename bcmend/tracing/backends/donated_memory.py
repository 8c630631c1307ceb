"""Memory that a backward graph may write over: none, where it has a choice or a loop in it.

Inductor tells what the backward may reuse by the positions of its inputs, and takes the inputs of
each graph inside for those of the whole. A side of a choice then writes over parameters and over
arguments of the program.

Works round ``GraphLowering.placeholder`` (torch/_inductor/graph.py): the lowering of a graph inside
asks ``get_donated_idxs`` for the positions of the whole backward, and marks its own placeholders by
them. Read in torch 2.13.0; the tests of this module show it with graphs that bcmend has made.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Final

import torch
from torch.fx import GraphModule

from bcmend.dynamo import compat, hooks
from bcmend.dynamo.models import methods

_WITH_GRAPHS_INSIDE: Final = (torch.ops.higher_order.cond, torch.ops.higher_order.while_loop)


def is_at_stake(module: GraphModule) -> bool:
    """Return whether the backward of a graph has graphs inside that Inductor compiles."""
    return any(
        node.target in _WITH_GRAPHS_INSIDE
        for each in module.modules()
        if isinstance(each, GraphModule)
        for node in each.graph.nodes
    )


@hooks.around(compat.OutputGraph, methods.CALL_BACK_END, "memory of a backward graph", gate=None)
def _compile(inner: Any, output: compat.OutputGraph, module: GraphModule, *more: Any) -> Any:
    is_off = is_at_stake(module)
    with compat.functorch_config.patch(donated_buffer=False) if is_off else nullcontext():
        return inner(output, module, *more)
