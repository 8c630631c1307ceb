"""A detached form of a tensor beside what Inductor finds to be the same tensor.

``loss.detach()`` is kept, and ``loss + 0 * penalty`` or ``loss * 1`` returned: Inductor takes away
the arithmetic and the detaching, and returns one tensor for both. Marking it as not differentiable,
as the detached one is, AOTAutograd takes the gradient from the other. Such a detached form is a
copy, which Inductor keeps beside what has the other's memory; so nothing else may share its memory.

Works round ``remove_noop_ops`` (torch/_inductor/fx_passes/post_grad.py), which looks for results
among the arguments of the output, of which the tuple of them is the only one, and AOTAutograd
(https://github.com/pytorch/pytorch/pull/195357); reproduced on 2.13.0 and 2.15.0. This can go when
``test_a_sum_with_zeros_loses_its_gradient_to_a_detached_tensor`` in
``tests/tracing/backends/test_faults_of_torch.py`` fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node

from bcmend.dynamo import compat, hooks
from bcmend.dynamo.models import methods
from bcmend.tracing.backends import donated_memory
from bcmend.tracing.effects.operator_runs import storage_of

#: Operations with zeros or ones, and copies, by their names as methods and functions.
_WITH_ONES: Final = frozenset(
    f"{before}{name}{after}"
    for name in ("add", "sub", "mul", "div", "truediv", "true_divide")
    for before, after in (("", ""), ("i", ""), ("", "_"))
)
_COPIES: Final = frozenset(["clone", "to", "contiguous"])


@hooks.around(
    compat.OutputGraph, methods.CALL_BACK_END, "results beside detached ones", gate=None, place=7
)
def _compile(inner: Any, output: compat.OutputGraph, module: GraphModule, *more: Any) -> Any:
    with donated_memory.copies_kept(is_at_stake=_copy_detached(module)):
        return inner(output, module, *more)


def _copy_detached(module: GraphModule) -> bool:
    """Copy the detached results of a graph that may become one with others; return whether any."""
    end = module.graph.output_node()
    results = [node for node in end.all_input_nodes if _is_tensor(node)]
    found = [each for each in _of_own_memory(module, results) if _may_be_one_of(each[0], results)]
    for first, *others in found:
        with module.graph.inserting_before(end):
            copied = _replaced(end, first, "clone", first)
            for each in others:
                _replaced(end, each, "detach", copied)
    if found:
        module.recompile()
    return bool(found)


def _replaced(end: Node, result: Node, method: str, given: Node) -> Node:
    """Return what a graph returns in the place of a result: what a method of a tensor gives."""
    made = end.graph.call_method(method, (given,))
    made.meta = {**result.meta}
    end.replace_input_with(result, made)
    return made


def _of_own_memory(module: GraphModule, results: Sequence[Node]) -> Iterator[list[Node]]:
    """Yield the results of each memory that a graph makes, all alike and without a gradient."""
    given = [*module.graph.find_nodes(op="placeholder"), *module.graph.find_nodes(op="get_attr")]
    of_program = {storage_of(_example(node)) for node in given if _is_tensor(node)}
    groups: dict[int, list[Node]] = {}
    for node in results:
        groups.setdefault(storage_of(_example(node)), []).append(node)
    for memory, group in groups.items():
        forms = {f"{each.dtype} {each.size()}" for each in map(_example, group)}
        if memory not in of_program and len(forms) == 1 and all(map(_is_copied_whole, group)):
            yield group


def _is_copied_whole(node: Node) -> bool:
    """Return whether a copy of a result differs in nothing but its memory."""
    example = _example(node)
    if example.requires_grad or example.layout is not torch.strided:
        return False
    wanted: Any = 1
    for size, stride in zip(reversed(example.size()), reversed(example.stride()), strict=True):
        if f"{stride}" != f"{wanted}":  # which asks nothing about sizes that vary
            return False
        wanted = wanted * size
    return True


def _may_be_one_of(node: Node, results: Sequence[Node]) -> bool:
    """Return whether a result with a gradient may be what ``node`` is detached from."""
    memory, waiting, seen = storage_of(_example(node)), [*results], set(results)
    while waiting:
        inner = waiting.pop()
        example = _example(inner)
        if example.requires_grad and storage_of(example) == memory:
            return True
        if not _may_give_argument(inner):
            continue
        fresh = {each for each in inner.all_input_nodes if _is_tensor(each)} - seen
        seen |= fresh
        waiting += fresh
    return False


def _may_give_argument(node: Node) -> bool:
    """Return whether Inductor may put one of its arguments in the place of a node."""
    name = node.target if node.op == "call_method" else getattr(node.target, "__name__", "")
    tensors = sum(map(_is_tensor, node.all_input_nodes))  # numbers it does not look at
    return name in _COPIES or (name in _WITH_ONES and tensors > 1)


def _is_tensor(node: Node) -> bool:
    return isinstance(_example(node), torch.Tensor)


def _example(node: Node) -> Any:
    return node.meta.get("example_value")
