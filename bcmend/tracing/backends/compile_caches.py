"""Inductor's caches on disk: graphs with choices and loops of ours may stay in them.

Torch stores no graph with a choice, a loop or a block of autocast in it, so that each process would
compile it anew; a mended graph has all of a model, and so what one layer has.
What is compiled depends on the text of the graph and of the graphs inside, which the key of the
caches holds, and on what bcmend does with choices and loops, which this module adds to the key.

Works round ``CacheabilityValidator`` (torch/_inductor/codecache.py), which refuses each operator
with graphs whose ``cacheable()`` is false, and ``check_node_safe``
(torch/_functorch/_aot_autograd/autograd_cache.py). Reproduced on torch 2.13.0;
``tests/tracing/backends/test_faults_of_torch.py`` fails when these are stored.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.fx import GraphModule

from bcmend.dynamo import compat, fx_graph, hooks, shape_env
from bcmend.dynamo.models import methods
from bcmend.knowledge.own_code import code_key
from bcmend.tracing.backends import donated_memory, uncompiled_sides
from bcmend.tracing.backends.backward_compilers import with_backward
from bcmend.tracing.effects.operator_runs import places_in_memory

#: The releases of torch from which on these do not hold, and what works round them can go.
UNTIL: Final = {
    "test_a_float_of_a_call_is_found_for_another_in_the_cache_of_autograd": "2.15",
    "test_blocks_of_autocast_are_not_stored_in_caches": "2.14",
}
_SETTING: Final = "unsafe_marked_cacheable_functions"
_KEPT: Final = "bcmend.kept_for_backward"
_SIZES: Final = "bcmend.sizes"
_UNDONATED: Final = "bcmend.undonated"
_MEMORY: Final = "bcmend.memory"
_OPERATORS: Final = ("torch.ops.higher_order.cond", "torch.ops.higher_order.while_loop")
_AUTOCASTS: Final = tuple(
    f"torch.amp.autocast_mode.{name}_autocast" for name in ("_enter", "_exit")
)


def _added(module: GraphModule) -> dict[str, str]:
    """Return what the key of a graph has to hold besides the text of the graph.

    Which nodes are kept for the backward pass is no part of that text, nor is what the backward may
    write over, nor which inputs lie in one memory, and where.
    """
    found = dict.fromkeys(_OPERATORS, code_key()) if uncompiled_sides.has_only_ours(module) else {}
    kept = [number for number, node in enumerate(module.graph.nodes) if "recompute" in node.meta]
    if kept:
        found[_KEPT] = f"{code_key()} {kept}"
    if any("unbacked_bindings" in node.meta for node in module.graph.nodes):
        found[_SIZES] = code_key()  # of which Inductor takes less for granted (``size_questions``)
    if donated_memory.is_at_stake(module):
        found[_UNDONATED] = code_key()
    if shared := _memory_shared(module):
        found[_MEMORY] = f"{code_key()} {shared}"
    if fx_graph.calls(module, compat._enter_autocast):
        found |= dict.fromkeys(_AUTOCASTS, _autocast_around())
    return found


def _memory_shared(module: GraphModule) -> list[list[tuple[int, Any, Any]]]:
    """Return the inputs that share memory: their numbers, where they begin, its size in bytes.

    AOTAutograd makes one input of those, and of the others views at these places.
    """
    nodes = module.graph.find_nodes(op="placeholder")
    given = enumerate(node.meta.get("example_value") for node in nodes)
    groups = places_in_memory(
        (number, example)
        for number, example in given
        if isinstance(example, torch.Tensor) and example.layout is torch.strided
    )
    return [each for each in groups.values() if len(each) > 1]


def _autocast_around() -> str:
    """Return what autocast does around a graph, on each kind of device: no text of it says so."""
    kinds = filter(torch.amp.is_autocast_available, ("cpu", "cuda", "mps", "xpu"))
    states = [
        (each, torch.is_autocast_enabled(each), torch.get_autocast_dtype(each)) for each in kinds
    ]
    return f"{code_key()} {states} {torch.is_autocast_cache_enabled()}"


@hooks.around(compat.AotAutograd, methods.CALL, "compiled graphs that are kept", gate=None)
def _compile(inner: Any, compiler: Any, module: Any, inputs: Any, **more: Any) -> Any:
    """Compile a graph with more in its key, whoever calls Inductor; its backward comes later."""
    if isinstance(module, GraphModule) and _reads_known_numbers(module):
        with compat.functorch_config.patch(enable_autograd_cache=False):
            return _compile_by_key(inner, compiler, module, inputs, **more)
    return _compile_by_key(inner, compiler, module, inputs, **more)


def _reads_known_numbers(module: GraphModule) -> bool:
    """Return whether a graph reads numbers that it is given inside of tensors, known as it is
    traced."""
    # AOTAutograd makes constants of what is computed of them, under guards that it adds. Its cache
    # has neither in its key, so that the graph of one number would be found for all others.
    context = compat.TracingContext.try_get()
    if context is None or context.fake_mode is None:
        return False
    examples = (node.meta.get("example_value") for node in fx_graph.nodes_in(module))
    return shape_env.reads_known_numbers(context.fake_mode.shape_env, examples)


def _compile_by_key(inner: Any, compiler: Any, module: Any, inputs: Any, **more: Any) -> Any:
    added = _added(module) if isinstance(module, GraphModule) else {}
    if not added:
        return inner(compiler, module, inputs, **more)
    known = compat.inductor_config.unsafe_marked_cacheable_functions
    setting = compat.inductor_config.patch({_SETTING: {**added, **known}})
    with setting:
        return inner(with_backward(compiler, setting), module, inputs, **more)
