"""Lower a branch to ``torch.cond``: each arm is a graph of its own, and only one of them runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

import torch
from torch.fx import Node, Proxy

from bcmend.dynamo import compat, fx_graph
from bcmend.dynamo.shape_env import symbols_in
from bcmend.dynamo.values import TensorValue, Value, example_of
from bcmend.tracing.backends import known_structures
from bcmend.tracing.effects import memory_form
from bcmend.tracing.effects.operator_runs import storage_of
from bcmend.tracing.gradients import untaken_gradients
from bcmend.tracing.lowering import flat_choices
from bcmend.tracing.lowering.arm_graphs import (
    OWN_OPERATORS,
    arm_graph,
    gradients_flow,
    has_other_sizes,
    has_to_be_a_tensor,
    has_to_be_covered,
    have_own_operators,
    installed,
    require_backward,
)
from bcmend.tracing.lowering.segments import is_light
from bcmend.tracing.merging.merge import Pair
from bcmend.tracing.merging.shared_memory import is_among
from bcmend.tracing.numbers import float_tensors
from bcmend.tracing.numbers.predicates import chosen
from bcmend.tracing.sites import nesting_limits
from bcmend.tracing.sites.refusal import Refusal
from bcmend.tracing.speculation.arms import ArmTrace


def by_cond(
    tx: compat.Tracer,
    predicate: TensorValue,
    then_arm: ArmTrace,
    else_arm: ArmTrace,
    pairs: Sequence[Pair],
    changed: Sequence[Proxy] = (),
) -> list[Value]:
    """Run the taken arm only. Raises ``Refusal`` for what ``torch.cond`` cannot return.

    The operator gets a copy of each tensor that is ``changed``: backward may read its operands.
    """
    if any(pair.is_number for pair in pairs):
        raise Refusal("arms-differ", "a size computed inside an arm")
    if any(map(have_own_operators, (then_arm, else_arm))):
        raise Refusal("arms-differ", OWN_OPERATORS)
    if gradients_flow(then_arm, else_arm):
        require_backward(then_arm, else_arm)
    _drop_places(then_arm, else_arm)
    operands = _operands(then_arm, else_arm, pairs)
    _require_known_sizes(operands, pairs)
    operands += _symbols_beside(tx, operands)
    one, other = [pair.then_value for pair in pairs], [pair.else_value for pair in pairs]
    then_graph = arm_graph(then_arm, operands, one, other, predicate, changed)
    else_graph = arm_graph(else_arm, operands, other, one, predicate, changed)
    are_flat = flat_choices.are_flat(tx, [then_graph, else_graph])
    size = nesting_limits.require_shallow(
        [then_graph, else_graph], are_flat=are_flat, is_light=is_light
    )
    graphs = installed(tx, "cond_true", then_graph), installed(tx, "cond_false", else_graph)
    entered = [_entered(tx, predicate, each, changed) for each in operands]
    arguments = (predicate.as_proxy(), *graphs, tuple(without_aliases(tx, entered)))
    proxy = tx.output.create_proxy("call_function", torch.ops.higher_order.cond, arguments, {})
    nesting_limits.mark_cond(proxy.node, size)
    untaken_gradients.mark_and_examine(tx, proxy.node)
    results = known_structures.called(tx, proxy, (then_graph, else_graph))
    merged = zip(pairs, results.items[: len(pairs)], strict=True)
    return [_as_merged(tx, *each) for each in merged]


def _require_known_sizes(operands: Sequence[Proxy], pairs: Sequence[Pair]) -> None:
    """Raise ``Refusal`` for a tensor with an unbacked size that only the arm knows."""
    if has_other_sizes([value for pair in pairs for value in pair.values], operands):
        raise Refusal("arms-differ", "a tensor whose size depends on data of the arm")


def _symbols_beside(tx: compat.Tracer, operands: Sequence[Proxy]) -> list[Proxy]:
    """Return the numbers that operands are expressions of, or have such sizes.

    Inductor writes ``min(3, u0)`` into the code of an arm, which knows ``u0`` if it is given it.
    """
    examples = [each.node.meta.get("example_value") for each in operands]
    tensors = [each for each in examples if isinstance(each, torch.Tensor)]
    numbers: list[Any] = [*examples, *(size for each in tensors for size in each.shape)]
    known = {each.node.expr for each in numbers if isinstance(each, torch.SymInt)}
    bound, graph = tx.output.current_tracer.bound_symbols, tx.output.current_tracer.graph
    unknown = sorted(_symbols_of_forms(examples) - known, key=str)
    found = [bound.get(each) for each in unknown]
    return [each for each in found if isinstance(each, Proxy) and each.node.graph is graph]


def _symbols_of_forms(examples: Sequence[Any]) -> set[Any]:
    """Return the symbols of numbers, and of sizes and strides of tensors.

    A tensor that begins at such a place in memory enters as a copy, which does not.
    """
    return set().union(*(symbols_in(_form(each)) for each in examples))


def _form(example: Any) -> Any:
    return [*example.size(), *example.stride()] if _is_strided(example) else example


def _is_strided(example: Any) -> TypeGuard[torch.Tensor]:
    return isinstance(example, torch.Tensor) and example.layout is torch.strided


def _begins_at_a_number(example: Any) -> bool:
    """Return whether the data decide where in memory a tensor begins, as an item of another."""
    return _is_strided(example) and bool(symbols_in(example.storage_offset()))


def _drop_places(*arms: ArmTrace) -> None:
    """Have arms not read the places in memory at which tensors begin, where they do nothing else.

    Dynamo hands a place to an arm that reads such a tensor.
    """
    unread = [
        (arm, outer, inner.node)
        for arm in arms
        for outer, inner in arm.lifted.items()
        if _is_unread_number(inner.node)
    ]
    if not unread:
        return
    nodes = [node for arm in arms for node in arm.graph.nodes if not _is_unread_number(node)]
    wanted = _symbols_of_forms([node.meta.get("example_value") for node in nodes])
    for arm, outer, node in unread:
        symbols = symbols_in(outer.node.meta.get("example_value"))
        if symbols and wanted.isdisjoint(symbols):
            del arm.lifted[outer]
            arm.graph.erase_node(node)


def _is_unread_number(node: Node) -> bool:
    return not node.users and isinstance(node.meta.get("example_value"), torch.SymInt)


def _as_merged(tx: compat.Tracer, pair: Pair, result: Value) -> Value:
    """Return a result of the operator with the dtype of the pair, detached if both sides are.

    To autograd, every result of ``torch.cond`` depends on all its operands.
    """
    example = example_of(pair.present)
    if has_to_be_covered(example):
        bits = fx_graph.method(tx, "view", result, torch.int64)
        result = fx_graph.method(tx, "to", bits, example.dtype)
    assert isinstance(result, compat.TensorVariable)
    result = memory_form.as_in(tx, result, example)
    has_history = any(example_of(side).requires_grad for side in pair.values)
    if has_history or not example_of(result).requires_grad:
        return result
    return fx_graph.method(tx, "detach", result)


def _entered(
    tx: compat.Tracer, predicate: TensorValue, operand: Proxy, changed: Sequence[Proxy]
) -> Proxy:
    """Return an operand as the operator takes it, or a copy of it if it is changed later.

    The copy is a choice between two equal values: Inductor would remove a clone before it decides
    what is stored for backward.
    """
    if is_among(operand, changed):
        return chosen(tx, predicate, operand, operand).as_proxy()
    if has_to_be_a_tensor(operand):
        return float_tensors.as_tensor(tx, operand).as_proxy()
    if _begins_at_a_number(operand.node.meta.get("example_value")):
        return fx_graph.method(tx, "clone", operand).as_proxy()
    return operand


def without_aliases(tx: compat.Tracer, operands: Sequence[Proxy]) -> list[Proxy]:
    """Copy operands that share memory with an earlier one, which ``torch.cond`` does not allow."""
    given, seen = [], set()
    for operand in operands:
        example = operand.node.meta.get("example_value")
        if _is_strided(example):
            storage = storage_of(example)
            if storage in seen:
                operand = fx_graph.method(tx, "clone", operand).as_proxy()
            seen.add(storage)
        given.append(operand)
    return given


def _operands(then_arm: ArmTrace, else_arm: ArmTrace, pairs: Sequence[Pair]) -> list[Proxy]:
    """Return what both arms read, each tensor of the main graph once."""
    outer: dict[Node, Proxy] = {}
    for proxy in (*then_arm.lifted, *else_arm.lifted):
        outer.setdefault(proxy.node, proxy)
    for pair in pairs:
        for value, arm in zip(pair.sides, (then_arm, else_arm), strict=True):
            if value is not None and value.as_proxy().node.graph is not arm.graph:
                outer.setdefault(value.as_proxy().node, value.as_proxy())
    return list(outer.values())
