"""Memory that is written over: none, where torch takes too much for memory that may be.

Inductor tells what the backward may reuse by the positions of its inputs, and takes the inputs of
each graph inside for those of the whole. A side of a choice then writes over parameters and over
arguments of the program. And AOTAutograd tells what is also a result by storages of fake tensors:
where a copy to all of a tensor has been removed, that of the tensor saved is another than that of a
view of it which the graph returns.

Works round ``GraphLowering.placeholder`` (torch/_inductor/graph.py): the lowering of a graph inside
asks ``get_donated_idxs`` for the positions of the whole backward, and marks its own placeholders by
them (https://github.com/pytorch/pytorch/pull/193960; reproduced on 2.13.0). This can go when
``test_the_backward_of_a_choice_writes_over_an_argument`` in
``tests/tracing/backends/test_faults_of_torch.py`` fails. Works round
``collect_bw_donated_buffer_idxs`` (torch/_functorch/_aot_autograd/graph_compile.py) for copies;
reproduced on 2.13.0, no issue is known. This can go when
``test_the_backward_writes_over_a_result_that_was_copied_to`` there fails.

Inductor also removes a copy of an input that the graph changes later, as of a queue of keys that a
loss reads and the call then adds to. The backward, and what reads the copy late, finds what was
written since. Works round ``remove_noop_ops`` (torch/_inductor/fx_passes/post_grad.py); reproduced
on 2.13.0, mended in 2.15. This can go when ``test_a_copy_of_what_is_changed_later_is_removed``
there fails on all releases.

And it takes the memory of what a loop begins with for free behind the loop. Where a turn returns
one of its inputs as it is, as the backward of a loop does with a gradient that no turn adds to,
that memory is the result. So none is used again in a graph with a loop. Works round
``WhileLoop.create`` (torch/_inductor/ir.py); reproduced on 2.13.0 and 2.15.0, no issue is known.
This can go when ``test_what_a_turn_returns_as_it_is_is_written_over`` there fails.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node

from bcmend.dynamo import compat, fx_graph, hooks
from bcmend.dynamo.models import methods
from bcmend.tracing.backends.backward_compilers import with_backward

#: The releases of torch from which on these do not hold, and what works round them can go.
UNTIL: Final = {
    "test_the_backward_of_a_choice_writes_over_an_argument": "2.15",
    "test_a_copy_of_what_is_changed_later_is_removed": "2.15",
}
_REMOVES_COPIES: Final = "remove_noop_ops"
_LOOP: Final = torch.ops.higher_order.while_loop
_WITH_GRAPHS_INSIDE: Final = (torch.ops.higher_order.cond, _LOOP)


def is_at_stake(module: GraphModule) -> bool:
    """Return whether a graph copies to what it has made, or has graphs inside to be compiled."""
    return any(
        node.target in _WITH_GRAPHS_INSIDE or _is_copy_to_intermediate(node)
        for each in module.modules()
        if isinstance(each, GraphModule)
        for node in each.graph.nodes
    )


def _is_copy_to_intermediate(node: Node) -> bool:
    if node.op != "call_method" or node.target != "copy_":
        return False
    target = node.args[0]
    return isinstance(target, Node) and target.op not in ("placeholder", "get_attr")


def changes_inputs(module: GraphModule) -> bool:
    """Return whether a graph changes one of its inputs in place."""
    inputs = (node for node in module.graph.nodes if node.op in ("placeholder", "get_attr"))
    examples = (node.meta.get("example_value") for node in inputs)
    return any(isinstance(each, torch.Tensor) and _is_changed(each) for each in examples)


def _is_changed(example: torch.Tensor) -> bool:
    return not example.is_inference() and example._version > 0  # which the former have none of


@hooks.around(compat.OutputGraph, methods.CALL_BACK_END, "memory of a backward graph", gate=None)
def _compile(inner: Any, output: compat.OutputGraph, module: GraphModule, *more: Any) -> Any:
    with _nothing_donated(module), copies_kept(is_at_stake=changes_inputs(module)):
        return inner(output, module, *more)


def _nothing_donated(module: GraphModule) -> Any:
    is_off = is_at_stake(module)
    return compat.functorch_config.patch(donated_buffer=False) if is_off else nullcontext()


def copies_kept(*, is_at_stake: bool) -> Any:
    """Have Inductor remove no copies in a block, if any of them is at stake."""
    if not is_at_stake:
        return nullcontext()
    passes = [*filter(None, [compat.inductor_config.disabled_passes]), _REMOVES_COPIES]
    return compat.inductor_config.patch(disabled_passes=",".join(passes))


@hooks.around(compat.AotAutograd, methods.CALL, "memory behind loops", gate=None, place=3)
def _compile_loops(inner: Any, compiler: Any, module: Any, *more: Any, **named: Any) -> Any:
    if not (isinstance(module, GraphModule) and fx_graph.calls(module, _LOOP)):
        return inner(compiler, module, *more, **named)
    setting = compat.inductor_config.patch(allow_buffer_reuse=False)
    with setting:
        return inner(with_backward(compiler, setting), module, *more, **named)
