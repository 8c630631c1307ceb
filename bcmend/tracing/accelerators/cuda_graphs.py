"""Graphs that Inductor cannot hold in CUDA graphs, and compiles without them.

Where a graph breaks, what is behind a number out of a tensor is a graph of its own, and so is what
is computed on the CPU. In one graph Inductor divides it into parts, each with a CUDA graph
(``mode="reduce-overhead"``). Parts between which a data-dependent number is handed on fail when
they are recorded, with an ``AssertionError`` or a ``NameError``, and a failing assertion on such a
number ends the process. Tensors on the CPU that the graph returns, or gives to an operator of ours,
are made on the GPU, so that a message names another device. What is on the CPU of what
``torch.while_loop`` carries is joined in one tensor, of one dtype, and the loop does not compile;
what a loop gives is taken for memory of the CUDA graphs. A graph with such numbers or tensors, or
with a loop, runs as it does without that mode.

Works round ``CUDAGraphNode`` (torch/_inductor/cudagraph_trees.py) and ``ConstructorMoverPass``
(torch/_inductor/fx_passes/post_grad.py). Seen on torch 2.13.0 with an NVIDIA H200; no issue is
known. ``tests/gpu`` runs such graphs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import torch
from torch.fx import GraphModule, Node

from bcmend.dynamo import compat, fx_graph, hooks
from bcmend.dynamo.models import methods
from bcmend.tracing.backends.backward_compilers import with_backward

#: The key under which Dynamo tells Inductor what a program has said of CUDA graphs.
_SAID: Final = "cudagraph_annotation"
_PURPOSE: Final = "graphs that CUDA graphs cannot hold"
_LOOP: Final = torch.ops.higher_order.while_loop
_NUMBERS: Final = (torch.SymInt, torch.SymFloat, torch.SymBool)


class _Said(NamedTuple):
    """Whether a forward and its backward are to be held in CUDA graphs, as Inductor reads it."""

    fwd: bool
    bwd: bool


_NEITHER: Final = _Said(fwd=False, bwd=False)


def cannot_be_held(module: GraphModule) -> bool:
    """Return whether a graph has data-dependent numbers or loops, or shows what is on the CPU.

    A graph that lies on the CPU as a whole is in no CUDA graph anyway.
    """
    nodes = fx_graph.nodes_in(module)
    if any(each.target is _LOOP or _is_number_of_data(each) for each in nodes):
        return True
    return any(map(_is_shown_on_the_cpu, nodes)) and not all(
        map(_is_on_the_cpu, (each for node in nodes for each in _tensors_of(node)))
    )


def _is_number_of_data(node: Node) -> bool:
    if "unbacked_bindings" in node.meta:
        return True
    value = node.meta.get("example_value")
    if isinstance(value, torch.SymFloat):
        return True  # not even as an argument
    return isinstance(value, _NUMBERS) and bool(compat.free_unbacked_symbols(value))


def _is_shown_on_the_cpu(node: Node) -> bool:
    """Return whether a tensor is computed on the CPU that not only torch's operators read."""
    if node.op in ("placeholder", "get_attr", "output") or not any(map(_shows, node.users)):
        return False
    return any(map(_is_on_the_cpu, _tensors_of(node)))


def _tensors_of(node: Node) -> Iterator[torch.Tensor]:
    value = node.meta.get("example_value")
    for each in value if isinstance(value, (tuple, list)) else (value,):
        if isinstance(each, torch.Tensor):
            yield each


def _is_on_the_cpu(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu"


def _shows(node: Node) -> bool:
    return (
        node.op == "output"
        or str(node.target).startswith("bcmend.")
        or isinstance(node.target, compat.HigherOrderOperator)
    )


@hooks.around(compat.OutputGraph, methods.CALL_BACK_END, _PURPOSE, gate=None, place=4)
def _compile(inner: Any, output: compat.OutputGraph, module: GraphModule, *more: Any) -> Any:
    if cannot_be_held(module):
        module.meta[_SAID] = _NEITHER
    return inner(output, module, *more)


@hooks.around(compat.AotAutograd, methods.CALL, _PURPOSE, gate=None, place=2)
def _compile_parts(inner: Any, compiler: Any, module: Any, inputs: Any, **more: Any) -> Any:
    """Compile a graph with the setting that its annotation stands for, and its backward too."""
    if not isinstance(module, GraphModule) or module.meta.get(_SAID) is not _NEITHER:
        return inner(compiler, module, inputs, **more)
    setting = compat.inductor_config.patch({"triton.cudagraphs": False})
    with setting:
        return inner(with_backward(compiler, setting), module, inputs, **more)
