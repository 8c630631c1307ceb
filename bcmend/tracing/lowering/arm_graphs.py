"""The arms of ``torch.cond`` as graphs of their own, over the same inputs.

The operator demands that both return tensors of one form, none of them an input or a view of one,
that no input is a float, and that gradients are laid out alike.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch.fx import Graph, GraphModule, Node, Proxy
from torch.fx.proxy import GraphAppendingTracer

from bcmend import meta_keys
from bcmend.dynamo import compat, shape_env
from bcmend.dynamo.models import graph_inputs
from bcmend.dynamo.values import TensorValue, Value, example_of, has_own_operators
from bcmend.tracing.backends import known_structures, uncompiled_sides
from bcmend.tracing.backends.backward_sides import inverse, order_in_memory
from bcmend.tracing.effects.operator_runs import facts_of_node
from bcmend.tracing.merging.shared_memory import is_among
from bcmend.tracing.sites.refusal import Refusal
from bcmend.tracing.speculation.arms import ArmTrace


def gradients_flow(*arms: ArmTrace) -> bool:
    """Return whether gradients can flow into anything that the arms read."""
    return torch.is_grad_enabled() and any(
        requires_grad(outer) for arm in arms for outer in arm.lifted
    )


def require_backward(*arms: ArmTrace) -> None:
    """Raise ``Refusal`` for what torch has no backward of in an arm of ``torch.cond``."""
    if name := without_backward(*arms):
        raise Refusal("arms-differ", f"{name} in an arm through which gradients flow")


def leave_sizes_of_their_own(arms: Iterable[ArmTrace], values: Iterable[Value]) -> bool:
    """Return whether arms leave a tensor with an unbacked size that only they know."""
    return has_other_sizes(values, [outer for arm in arms for outer in arm.lifted])


def has_other_sizes(values: Iterable[Value], operands: Iterable[Proxy]) -> bool:
    """Return whether a tensor has an unbacked size that no operand has."""
    known = shape_env.symbols_in([each.node.meta.get("example_value") for each in operands])
    tensors = [each for each in values if isinstance(each, compat.TensorVariable)]
    return bool(shape_env.symbols_in([_form(example_of(each)) for each in tensors]) - known)


def _form(example: torch.Tensor) -> Any:
    """Return what a copy of a tensor has of its form: not where in memory it begins."""
    return (example.size(), example.stride()) if example.layout is torch.strided else example


#: Why there is no operator that calls a graph.
OWN_OPERATORS: Final = "a tensor of a class with __torch_dispatch__"


def have_own_operators(trace: ArmTrace) -> bool:
    """Return whether a graph is given or makes a tensor of a class with ``__torch_dispatch__``."""
    outer = (each.node for each in trace.lifted)
    examples = (node.meta.get("example_value") for node in (*outer, *trace.graph.nodes))
    return any(map(has_own_operators, compat.tree_leaves(list(examples))))


def without_backward(*arms: ArmTrace) -> str:
    """Return the name of something of which ``torch.cond`` has no backward; empty without."""
    for node in (node for arm in arms for node in arm.graph.nodes):
        if is_of_a_transform(node):
            return "a transform of torch.func"
        if facts_of_node(node).is_recurrent:
            return str(getattr(node.target, "__name__", node.target))
    return ""


def is_of_a_transform(node: Node) -> bool:
    """Return whether a node begins or ends ``torch.vmap``, ``torch.func.grad`` or the like."""
    return "_nesting" in getattr(node.target, "__name__", "")


def with_example(node: Node, example: Any) -> Node:
    """Return ``node`` with ``example`` for the value that it computes."""
    node.meta["example_value"] = example
    return node


def installed(tx: compat.Tracer, name: str, graph: Graph) -> Proxy:
    """Install a graph for an operator to call; return what stands for it in the main graph."""
    module = GraphModule(dict(tx.output.nn_modules), graph)
    uncompiled_sides.mark_side(module, known_structures.of_trace(tx, graph))
    return tx.output.create_proxy("get_attr", tx.output.install_subgraph(name, module), (), {})


def arm_graph(
    arm: ArmTrace,
    operands: Sequence[Proxy],
    values: Sequence[Any],
    others: Sequence[Any],
    predicate: TensorValue,
    changed: Sequence[Proxy],
) -> Graph:
    """Return the arm as a graph over all operands that returns copies of ``values``.

    Where one is ``None``, zeros in the form of the one in ``others`` stand in; nobody reads them.
    """
    graph = Graph()
    known = _inputs(graph, operands, changed)
    given = set(known.values())
    numbers = [known[each.node] for each in operands if has_to_be_a_tensor(each)]
    for outer, inner in arm.lifted.items():
        known[inner.node] = known[outer.node]
    for node in arm.graph.nodes:
        if node not in known:
            known[node] = copied_inside(graph, node, known)
        if node.op == "call_method" and node.target == "item" and known[node].args[0] in given:
            _take_out_of_a_copy(graph, known[node])
    results = [
        _result(graph, known, value, example_of(other if value is None else value), operands)
        for value, other in zip(values, others, strict=True)
    ]
    if not results:  # an operator has to return something
        result = graph.call_function(torch.zeros, ((),))
        results.append(with_example(result, example_of(predicate)))
    graph.output(tuple(results))
    for number in numbers:
        if not number.users:
            graph.erase_node(number)
    return graph


def copied_inside(graph: Graph, node: Node, known: Mapping[Node, Node]) -> Node:
    """Copy a node into the graph of an operator.

    That is to assert that there is an item where one is read: Inductor reads memory unasked, and
    torch puts what it asserts of numbers into the main graph alone.
    """
    _assert_item(graph, node, known)
    return graph.node_copy(node, known.__getitem__)


def _assert_item(graph: Graph, node: Node, known: Mapping[Node, Node]) -> None:
    if node.target not in (torch.select, "select") or len(node.args) != 3:
        return
    given: tuple[Any, Any, Any] = node.args
    tensor, at, number = given
    example = tensor.meta.get("example_value") if isinstance(tensor, Node) else None
    if not (isinstance(example, torch.Tensor) and isinstance(at, int) and isinstance(number, Node)):
        return
    size: Any = example.shape[at]
    if isinstance(size, torch.SymInt):
        # Without an example: torch would take the number of what else has it in its form, as one
        # carried by a loop whose example begins there in memory.
        size = graph.call_method("size", (known[tensor], at))
    place = known[number]
    below = graph.call_function(operator.neg, (size,)) if isinstance(size, Node) else -size
    for holds in (
        graph.call_function(operator.lt, (place, size)),
        graph.call_function(operator.ge, (place, below)),
    ):
        graph.call_function(compat.ASSERT_SCALAR, (holds, "there is no item at this place"))


def _result(
    graph: Graph, known: Mapping[Node, Node], value: Any, example: torch.Tensor, operands: Any
) -> Node:
    """Return what an arm returns of a value: a copy, or zeros for ``None``."""
    if value is None:
        found = zeros_in_form_of(graph, example, [each.node for each in operands])
    else:
        found = copied(graph, known[value.as_proxy().node], example)
    if has_to_be_covered(example):
        found = covered(graph, found, example)
    if value is None:
        found.meta[meta_keys.ABSENT] = True
    return found


def _inputs(graph: Graph, operands: Sequence[Proxy], changed: Sequence[Proxy]) -> dict[Node, Node]:
    """Give a graph its inputs; return the form in which each operand is read there."""
    known: dict[Node, Node] = {}
    for at, operand in enumerate(operands):  # two may have one name, each in a graph of its own
        name = f"operand_{at}"
        known[operand.node] = graph_inputs.placeholder_for(graph, name, operand.node)
    copies: dict[int, Node] = {}  # what the arm changes is one tensor by all its names
    for operand in operands:
        entered, example = known[operand.node], operand.node.meta.get("example_value")
        if has_to_be_a_tensor(operand):
            entered = _number_again(graph, entered)
        if is_among(operand, changed):
            if id(example) not in copies:
                copy = graph.call_method("clone", (entered,))
                copies[id(example)] = with_example(copy, example)
            entered = copies[id(example)]
        known[operand.node] = entered
    return known


def _number_again(graph: Graph, placeholder: Node) -> Node:
    """Return the number that enters an arm as a tensor."""
    number = graph.call_method("item", (placeholder,))
    number.meta["example_value"] = placeholder.meta["example_value"]
    placeholder.meta.clear()  # it was of the number
    _take_out_of_a_copy(graph, number)
    return number


def _take_out_of_a_copy(graph: Graph, number: Node) -> None:
    """Have a number be taken out of a copy of what an arm is given.

    Torch takes no second number out of one tensor, and Inductor wants one for each arm.
    """
    tensor: Any = number.args[0]
    with graph.inserting_before(number):
        copy = graph.call_method("clone", (tensor,))
    copy.meta.update(tensor.meta)
    number.args = (copy,)


def zeros_in_form_of(graph: Graph, example: torch.Tensor, operands: Sequence[Node]) -> Node:
    """Return zeros in the form of a copy of ``example``; ``torch.cond`` compares strides too."""
    order = list(range(example.dim()))
    if compat.is_non_overlapping_and_dense_or_false(example):
        order = order_in_memory(example)
    size = tuple(_size_inside(graph, example.shape[at], operands) for at in order)
    keywords: Any = {"dtype": example.dtype, "device": example.device}
    zeros = with_example(graph.call_function(torch.zeros, (size,), keywords), example)
    return permuted(graph, zeros, example, inverse(order))


def copied(graph: Graph, node: Node, example: torch.Tensor) -> Node:
    """Return a copy laid out as zeros in its form are, in dimensions of one item as well."""
    if not compat.is_non_overlapping_and_dense_or_false(example):
        return with_example(graph.call_method("clone", (node,)), example)
    order = order_in_memory(example)
    ordered = permuted(graph, node, example.permute(order), order)
    form: dict[str, Any] = {"memory_format": torch.contiguous_format}
    copy = with_example(graph.call_method("clone", (ordered,), form), example.permute(order))
    return permuted(graph, copy, example, inverse(order))


def _size_inside(graph: Graph, size: Any, operands: Sequence[Node]) -> Any:
    """Return a size as an arm computes it of what it is given.

    Raises ``Refusal`` where nothing that it is given has such a size.
    """
    if not isinstance(size, torch.SymInt):
        return size
    tracer = GraphAppendingTracer(graph)  # one for all that is computed together
    numbers = {
        symbol: Proxy(_number_of(graph, symbol, operands), tracer)
        for symbol in size.node.expr.free_symbols
    }
    found = shape_env.computed_of(numbers, size.node.expr)
    return with_example(found.node, size) if isinstance(found, Proxy) else found


def _number_of(graph: Graph, symbol: Any, operands: Sequence[Node]) -> Node:
    inputs: list[Node] = [node for node in graph.nodes if node.op == "placeholder"]
    for entered, operand in zip(inputs, operands, strict=True):
        for dimension, size in _sizes_told_by(operand):
            if size.node.expr == symbol and dimension is None:
                return entered
            if size.node.expr == symbol:
                return with_example(graph.call_method("size", (entered, dimension)), size)
    raise Refusal("arms-differ", "a size that only one side knows")


def _sizes_told_by(node: Node) -> Iterator[tuple[int | None, Any]]:
    """Yield the number that a node is, or each size of its tensor with the dimension."""
    example = node.meta.get("example_value")
    if isinstance(example, torch.SymInt):
        yield None, example
    elif isinstance(example, torch.Tensor):
        sizes: tuple[Any, ...] = example.shape
        for dimension, size in enumerate(sizes):
            if isinstance(size, torch.SymInt):
                yield dimension, size


def tellers(place: Node, examples: Iterable[torch.Tensor], operands: Sequence[Node]) -> list[Node]:
    """Return what tells sizes of ``examples`` that no operand tells, in front of a place."""
    sizes: list[Any] = [size for each in examples for size in each.shape]
    symbolic = (size for size in sizes if isinstance(size, torch.SymInt))
    missing = {symbol for size in symbolic for symbol in size.node.expr.free_symbols}
    found: list[Node] = []
    for node in (*operands, *place.graph.nodes):
        told = {size.node.expr for _, size in _sizes_told_by(node)} & missing
        if node is place or not missing:
            break
        missing -= told
        if told and node not in operands:
            found.append(node)
    return found


def permuted(graph: Graph, node: Node, example: torch.Tensor, order: Sequence[int]) -> Node:
    """Return a view with its dimensions in ``order``, whose form is that of ``example``."""
    if list(order) == sorted(order):
        return node
    return with_example(graph.call_method("permute", (node, tuple(order))), example)


def covered(graph: Graph, result: Node, example: torch.Tensor) -> Node:
    """Return the bits of a tensor of integers as floating numbers; nobody calculates with them."""
    wide = example.detach().to(torch.int64, copy=True)  # in memory of its own, as the result is
    found = with_example(graph.call_method("to", (result, torch.int64)), wide)
    bits = wide.view(torch.float64)
    return with_example(graph.call_method("view", (found, torch.float64)), bits)


def under_cover(node: Node, source: Node) -> Node | None:
    """Return what a node gives back that takes the cover off a value; ``None`` for others."""
    name = node.target
    if name not in ("view", "to") or source.target != name or len(node.args) != 2:
        return None
    before = source.args[0]
    if not isinstance(before, Node) or before.meta["example_value"].dtype is not node.args[1]:
        return None
    covers = (torch.float64, torch.int64) if name == "view" else (torch.int64, node.args[1])
    return before if source.args[1:] == covers[:1] and node.args[1] is covers[1] else None


def uncover(value: Node) -> None:
    """Have those that take the cover off a value read what is under it."""
    for user in list(value.users):
        before = under_cover(user, value) if user.args[0] is value else None
        if before is not None:
            user.replace_all_uses_with(before)
            uncover(before)


def has_to_be_covered(example: torch.Tensor) -> bool:
    """Return whether the backward of ``torch.cond`` would miscount a result."""
    return torch.is_grad_enabled() and has_no_gradient(example)


def has_no_gradient(example: Any) -> bool:
    """Return whether a value is a tensor of integers or truths."""
    is_tensor = isinstance(example, torch.Tensor)
    return is_tensor and not (example.is_floating_point() or example.is_complex())


def has_to_be_a_tensor(operand: Proxy) -> bool:
    """Return whether an operand is a number that ``torch.cond`` does not take."""
    return isinstance(operand.node.meta.get("example_value"), (torch.SymFloat, torch.SymBool))


def requires_grad(value: Any) -> bool:
    """Return whether a value is a proxy of a tensor that requires gradients."""
    example = value.node.meta.get("example_value") if isinstance(value, Proxy) else None
    return isinstance(example, torch.Tensor) and example.requires_grad
