"""The arms of ``torch.cond`` as graphs of their own, over the same inputs.

Each of the operator's demands on its arms is met here: that both return tensors of one form, none
of them an input or a view of one, that no input is a float, that gradients are laid out alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch._dynamo.variables import TensorVariable
from torch._prims_common import is_non_overlapping_and_dense_or_false
from torch.fx import Graph, Node, Proxy

from bcmend.runtime.arms import ArmTrace
from bcmend.runtime.merge import CannotMerge, example_of

__all__ = [
    "arm_graph",
    "has_to_be_a_tensor",
    "has_to_be_covered",
    "is_among",
    "is_of_a_transform",
    "require_backward",
    "requires_grad",
]


#: Recurrent layers. The backward of ``torch.cond`` fails at the empty gradients of theirs.
_RECURRENT: Final = frozenset(["lstm", "gru", "rnn_tanh", "rnn_relu"])


def require_backward(*arms: ArmTrace) -> None:
    """Raise ``CannotMerge`` for what torch cannot go backward through in an arm."""
    for arm in arms:
        for node in arm.graph.nodes:
            name = getattr(node.target, "__name__", "")
            if name in _RECURRENT:
                raise CannotMerge(f"{name} in an arm through which gradients flow")
            if is_of_a_transform(node):
                raise CannotMerge(
                    "a transform of torch.func in an arm through which gradients flow"
                )


def is_of_a_transform(node: Node) -> bool:
    """Whether a node begins or ends the work of ``torch.vmap``, ``torch.func.grad`` or the like."""
    return "_nesting" in getattr(node.target, "__name__", "")


def arm_graph(
    arm: ArmTrace,
    operands: Sequence[Proxy],
    values: Sequence[Any],
    others: Sequence[Any],
    predicate: TensorVariable,
    changed: Sequence[Proxy],
) -> Graph:
    """Return the arm as a graph over all operands that returns ``values``.

    Where a side has no value, zeros of the form of the other side's stand in; nobody reads them.
    Results are copied: a branch may not return its input or a view of it.
    """
    graph = Graph()
    known = _inputs(graph, operands, changed)
    numbers = [known[each.node] for each in operands if has_to_be_a_tensor(each)]
    for outer, inner in arm.lifted.items():
        known[inner.node] = known[outer.node]
    for node in arm.graph.nodes:
        if node not in known:
            known[node] = graph.node_copy(node, known.__getitem__)
    results = []
    for value, other in zip(values, others, strict=True):
        if value is None:
            result = _zeros_in_form_of(graph, example_of(other))
        else:
            result = graph.call_method("clone", (known[value.as_proxy().node],))
            result.meta["example_value"] = example_of(value)
        covered = has_to_be_covered(example_of(other if value is None else value))
        results.append(_covered(graph, result) if covered else result)
    if not results:  # an operator has to return something
        result = graph.call_function(torch.zeros, ((),))
        result.meta["example_value"] = example_of(predicate)
        results.append(result)
    graph.output(tuple(results))
    for number in numbers:
        if not number.users:
            graph.erase_node(number)
    return graph


def _inputs(graph: Graph, operands: Sequence[Proxy], changed: Sequence[Proxy]) -> dict[Node, Node]:
    """Give a graph its inputs; return the form in which each operand is read there."""
    known: dict[Node, Node] = {}
    for at, operand in enumerate(operands):  # two may have one name, each in a graph of its own
        known[operand.node] = graph.placeholder(f"operand_{at}")
        known[operand.node].meta.update(operand.node.meta)
    for operand in operands:
        placeholder = known[operand.node]
        if has_to_be_a_tensor(operand):
            known[operand.node] = _number_again(graph, placeholder)
        if torch.is_grad_enabled() and requires_grad(operand):
            known[operand.node] = _entered(graph, placeholder, operand)
        if is_among(operand, changed):
            known[operand.node] = _copy_within(graph, operand, operands, known)
    return known


def _number_again(graph: Graph, placeholder: Node) -> Node:
    """Return the number that enters an arm as a tensor.

    It is taken out of a copy: torch takes no second number out of one tensor, and Inductor wants
    one for each arm.
    """
    copy = graph.call_method("clone", (placeholder,))
    number = graph.call_method("item", (copy,))
    number.meta["example_value"] = placeholder.meta["example_value"]
    placeholder.meta.clear()  # it was of the number
    return number


def _zeros_in_form_of(graph: Graph, example: torch.Tensor) -> Node:
    """Return zeros in the form of a copy of ``example``; ``torch.cond`` compares strides too."""
    order = list(range(example.dim()))
    if is_non_overlapping_and_dense_or_false(example):
        order = _order_in_memory(example)
    zeros = graph.call_function(
        torch.zeros,
        (tuple(example.shape[dimension] for dimension in order),),
        {"dtype": example.dtype, "device": example.device},
    )
    zeros.meta["example_value"] = example
    return _permuted(graph, zeros, example, _places(order))


def _order_in_memory(example: torch.Tensor) -> list[int]:
    """Return the dimensions, from the one with the largest stride to the one with the least.

    Where a stride is not known, as they come.
    """
    order, strides = list(range(example.dim())), example.stride()
    if all(isinstance(stride, int) for stride in strides):
        order.sort(key=lambda dimension: -strides[dimension])
    return order


def _places(order: Sequence[int]) -> list[int]:
    """Return where each dimension is in ``order``."""
    return [order.index(dimension) for dimension in range(len(order))]


def _permuted(graph: Graph, node: Node, example: torch.Tensor, order: Sequence[int]) -> Node:
    """Return a view with its dimensions in ``order``, whose form is that of ``example``."""
    if list(order) == sorted(order):
        return node
    result = graph.call_method("permute", (node, tuple(order)))
    result.meta["example_value"] = example
    return result


def _covered(graph: Graph, result: Node) -> Node:
    """Return the bits of a tensor of integers as floating numbers; nobody calculates with them."""
    wide = graph.call_method("to", (result, torch.int64))
    return graph.call_method("view", (wide, torch.float64))


def _copy_within(
    graph: Graph, operand: Proxy, operands: Sequence[Proxy], known: dict[Node, Node]
) -> Node:
    """Return a copy of an operand that the arm may change, the same one for all its names."""
    for earlier in operands:
        if earlier is operand:
            break
        if is_among(earlier, [operand]):
            return known[earlier.node]
    copied = graph.call_method("clone", (known[operand.node],))
    copied.meta["example_value"] = operand.node.meta["example_value"]
    return copied


def _entered(graph: Graph, placeholder: Node, operand: Proxy) -> Node:
    """Return an operand in a form whose gradient is laid out alike in every arm.

    The backward of torch.cond asks for that. The gradient of a sum, for one, comes as an expanded
    number: multiplied by one it is dense. That of a factorisation comes transposed: flattened and
    unflattened, in the order in which the operand lies in memory, it is laid out as the operand is.
    """
    example = operand.node.meta["example_value"]
    order = _order_in_memory(example)
    ordered_example = example.permute(order)
    ordered = _permuted(graph, placeholder, ordered_example, order)
    entered = graph.call_function(torch.mul, (ordered, 1))
    entered.meta["example_value"] = ordered_example
    if ordered_example.is_contiguous():
        flat = graph.call_method("reshape", (entered, -1))
        flat.meta["example_value"] = ordered_example.reshape(-1)
        entered = graph.call_method("view_as", (flat, ordered))
        entered.meta["example_value"] = ordered_example
    return _permuted(graph, entered, example, _places(order))


def has_to_be_covered(example: torch.Tensor) -> bool:
    """The backward of torch.cond counts results that are no floating numbers wrongly."""
    return torch.is_grad_enabled() and not (example.is_floating_point() or example.is_complex())


def has_to_be_a_tensor(operand: Proxy) -> bool:
    """Whether an operand is a number that ``torch.cond`` does not take."""
    return isinstance(operand.node.meta.get("example_value"), (torch.SymFloat, torch.SymBool))


def is_among(outer: Proxy, changed: Sequence[Proxy]) -> bool:
    """Whether ``outer`` is one of ``changed``, by whatever name."""
    example = outer.node.meta.get("example_value")
    return any(example is each.node.meta.get("example_value") for each in changed)


def requires_grad(outer: Proxy) -> bool:
    example = outer.node.meta.get("example_value")
    return isinstance(example, torch.Tensor) and example.requires_grad
