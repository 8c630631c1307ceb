"""Write a branch into the graph: both arms and ``torch.where``, or ``torch.cond``.

Reads two traced arms and the pairs of tensors to merge; adds nodes to the main graph; returns the
merged tensors in the order of the pairs.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch._dynamo.variables import TensorVariable
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builder import wrap_fx_proxy
from torch._dynamo.variables.tensor import SymNodeVariable
from torch.fx import GraphModule, Node, Proxy

from bcmend.runtime import asserted, calls, depth, doubles, histories, scalars, sizes
from bcmend.runtime.arm_graphs import (
    arm_graph,
    has_to_be_a_tensor,
    has_to_be_covered,
    is_among,
    require_backward,
    requires_grad,
)
from bcmend.runtime.arms import ArmTrace
from bcmend.runtime.merge import CannotMerge, Pair, example_of
from bcmend.runtime.operations import storage_of
from bcmend.runtime.random_numbers import may_draw

__all__ = [
    "as_predicate",
    "by_cond",
    "by_where",
    "chosen",
    "either",
    "gated",
    "gradients_flow",
    "negated",
    "without_aliases",
]


def as_predicate(tx: Any, condition: VariableTracker) -> TensorVariable:
    """Return the truth of a one-element tensor or symbolic number as a 0-d boolean tensor."""
    if isinstance(condition, SymNodeVariable):
        kept = scalars.tensor_of(tx, condition)
        if kept is not None:
            return kept
        value = _tensor_of_number(tx, condition)
    else:
        value = condition  # type: ignore[assignment]
    example = example_of(value)
    if example.dim() != 0:
        value = calls.method(tx, "reshape", value.as_proxy(), ())
    if example.dtype is not torch.bool:
        value = calls.method(tx, "to", value.as_proxy(), torch.bool)  # NaN is true, as in Python
    return value


def _tensor_of_number(tx: Any, condition: SymNodeVariable) -> TensorVariable:
    """Return the truth of a number taken out of a tensor as a tensor again."""
    proxy = condition.as_proxy()
    if not isinstance(condition.sym_num, torch.SymBool):
        proxy = tx.output.create_proxy("call_function", operator.ne, (proxy, 0), {})
        wrap_fx_proxy(tx, proxy)
    truth = tx.output.create_proxy(
        "call_function", torch.scalar_tensor, (proxy,), {"dtype": torch.bool}
    )
    result = wrap_fx_proxy(tx, truth)
    assert isinstance(result, TensorVariable)
    return result


def negated(tx: Any, predicate: TensorVariable) -> TensorVariable:
    return calls.function(tx, torch.logical_not, predicate.as_proxy())


def both(tx: Any, one: TensorVariable, other: TensorVariable) -> TensorVariable:
    return calls.function(tx, torch.logical_and, one.as_proxy(), other.as_proxy())


def either(tx: Any, one: TensorVariable, other: TensorVariable) -> TensorVariable:
    return calls.function(tx, torch.logical_or, one.as_proxy(), other.as_proxy())


def keep_draws(tx: Any, predicate: TensorVariable) -> None:
    """Keep the random draws that a condition comes from, although nothing depends on it any more.

    A back end takes operations without a use out of the graph, and with a draw every later number
    would be another. An assertion that cannot fail is a use that stays.
    """
    seen: set[Node] = set()
    pending = [predicate.as_proxy().node]
    while pending:
        node = pending.pop()
        if may_draw(node):
            break
        fresh = [each for each in node.all_input_nodes if each not in seen]
        seen.update(fresh)
        pending.extend(fresh)
    else:
        return
    holds = either(tx, predicate, negated(tx, predicate))
    arguments = (holds.as_proxy(), "a truth or its contrary holds")
    tx.output.create_proxy("call_function", torch.ops.aten._assert_async.msg, arguments, {})


def gradients_flow(*arms: ArmTrace) -> bool:
    """Whether gradients can flow into anything that the arms read."""
    return torch.is_grad_enabled() and any(
        requires_grad(outer) for arm in arms for outer in arm.lifted
    )


def by_where(
    tx: Any,
    predicate: TensorVariable,
    then_arm: ArmTrace,
    else_arm: ArmTrace,
    pairs: Sequence[Pair],
    changed: Sequence[Proxy] = (),
) -> list[VariableTracker]:
    """Run both arms and choose, value by value.

    Where gradients flow, what enters an arm goes through a gate: the tensor itself where the arm is
    taken, a detached one where not, so that no NaN or infinity of the untaken arm's gradient gets
    back (multiplying it by zero would keep it). Of what is ``changed``, each arm gets its own copy.
    """
    then_values = _splice(tx, then_arm, _Gate(tx, predicate, taken=True), changed)
    else_values = _splice(tx, else_arm, _Gate(tx, predicate, taken=False), changed)
    merged: list[VariableTracker] = []
    for pair in pairs:
        one = _mapped(pair.then_value, then_values)
        other = _mapped(pair.else_value, else_values)
        if one is None or other is None or pair.is_number:
            merged.append(_rewrap(tx, pair, one if one is not None else other))
        else:
            merged.append(chosen(tx, predicate, one, other))
    return _in_kind(tx, pairs, merged)


def _in_kind(
    tx: Any, pairs: Sequence[Pair], merged: Sequence[VariableTracker]
) -> list[VariableTracker]:
    return [
        calls.in_kind_of(tx, pair.present, each) for pair, each in zip(pairs, merged, strict=True)
    ]


def by_cond(
    tx: Any,
    predicate: TensorVariable,
    then_arm: ArmTrace,
    else_arm: ArmTrace,
    pairs: Sequence[Pair],
    changed: Sequence[Proxy] = (),
) -> list[VariableTracker]:
    """Run the taken arm only. Raises ``CannotMerge`` for what ``torch.cond`` cannot return.

    Of what is ``changed``, the operator gets a copy, since it may keep its operands for backward.
    """
    if any(pair.is_number for pair in pairs):
        raise CannotMerge("a size computed inside an arm")
    size = depth.require_shallow([then_arm.graph, else_arm.graph])
    if gradients_flow(then_arm, else_arm):
        require_backward(then_arm, else_arm)
    operands = _operands(then_arm, else_arm, pairs)
    _require_known_sizes(operands, pairs)
    names = []
    for suffix, arm, values, others in (
        ("true", then_arm, [p.then_value for p in pairs], [p.else_value for p in pairs]),
        ("false", else_arm, [p.else_value for p in pairs], [p.then_value for p in pairs]),
    ):
        graph = arm_graph(arm, operands, values, others, predicate, changed)
        module = GraphModule(dict(tx.output.nn_modules), graph)
        names.append(tx.output.install_subgraph(f"cond_{suffix}", module))
    attributes = [tx.output.create_proxy("get_attr", name, (), {}) for name in names]
    given = without_aliases(
        tx, [_operand(tx, each) for each in _kept_apart(tx, predicate, operands, changed)]
    )
    proxy = tx.output.create_proxy(
        "call_function",
        torch.ops.higher_order.cond,
        (predicate.as_proxy(), *attributes, tuple(given)),
        {},
    )
    depth.mark_cond(proxy.node, size)
    with asserted.taken_back(tx.output.shape_env):  # torch goes through both arms here
        every: Any = wrap_fx_proxy(tx, proxy)
    results = list(every.items)[: len(pairs)]
    results = [
        _without_history(tx, pair, _uncovered(tx, result, example_of(pair.present)))
        for pair, result in zip(pairs, results, strict=True)
    ]
    return _in_kind(tx, pairs, results)


def _require_known_sizes(operands: Sequence[Proxy], pairs: Sequence[Pair]) -> None:
    """Raise ``CannotMerge`` for a tensor whose size an arm has found out: nobody else knows it."""
    known = {
        symbol
        for each in operands
        for symbol in sizes.symbols_in(each.node.meta.get("example_value"))
    }
    values = [value for pair in pairs for value in (pair.then_value, pair.else_value)]
    if any(sizes.symbols_in(example_of(each)) - known for each in values if each is not None):
        raise CannotMerge("a tensor whose size depends on data of the arm")


def _without_history(tx: Any, pair: Pair, result: VariableTracker) -> VariableTracker:
    """Detach a result that requires no gradients on either side.

    To autograd, every result of ``torch.cond`` is one of all its operands.
    """
    sides = [example_of(side) for side in (pair.then_value, pair.else_value) if side is not None]
    assert isinstance(result, TensorVariable)
    if any(side.requires_grad for side in sides) or not example_of(result).requires_grad:
        return result
    return calls.method(tx, "detach", result.as_proxy())


def _uncovered(tx: Any, result: VariableTracker, example: torch.Tensor) -> VariableTracker:
    if not has_to_be_covered(example):
        return result
    bits = calls.method(tx, "view", result.as_proxy(), torch.int64)
    return calls.method(tx, "to", bits.as_proxy(), example.dtype)


def _kept_apart(
    tx: Any, predicate: TensorVariable, operands: Sequence[Proxy], changed: Sequence[Proxy]
) -> list[Proxy]:
    """Return the operands, with a copy of each that is changed later.

    The copy is made by a choice between two equal values: Inductor takes a clone out again before
    it settles what is kept for backward.
    """
    return [
        chosen(tx, predicate, each, each).as_proxy() if is_among(each, changed) else each
        for each in operands
    ]


def _operand(tx: Any, operand: Proxy) -> Proxy:
    return doubles.as_tensor(tx, operand).as_proxy() if has_to_be_a_tensor(operand) else operand


def without_aliases(tx: Any, operands: Sequence[Any]) -> list[Any]:
    """Copy what shares memory with another operand, which ``torch.cond`` takes for a result's.

    Plain numbers, which a loop may carry, stay as they are.
    """
    given, seen = [], set()
    for operand in operands:
        if not isinstance(operand, Proxy):
            given.append(operand)
            continue
        example = operand.node.meta.get("example_value")
        if isinstance(example, torch.Tensor) and example.layout is torch.strided:
            storage = storage_of(example)
            if storage in seen:
                operand = calls.method(tx, "clone", operand).as_proxy()
            seen.add(storage)
        given.append(operand)
    return given


def gated(
    tx: Any, predicate: TensorVariable, values: Sequence[Proxy], *, taken: bool
) -> list[Proxy]:
    """Return ``values`` in the form in which they enter what may have run in vain."""
    gate = _Gate(tx, predicate, taken=taken)
    return [gate(value) for value in values]


def chosen(tx: Any, predicate: TensorVariable, one: Proxy, other: Proxy) -> TensorVariable:
    return calls.function(tx, torch.where, predicate.as_proxy(), one, other)


_DETACHED: Final = "bcmend_detached"  # in the meta of what a gate gives in place of a tensor


class _Gate:
    """The form in which a tensor of the main graph enters a speculated arm.

    Attributes:
        detached: what each tensor is where no gradients flow.
    """

    def __init__(self, tx: Any, predicate: TensorVariable, *, taken: bool) -> None:
        self._tx, self._predicate, self._taken = tx, predicate, taken
        self.detached: dict[Node, Proxy] = {}

    def __call__(self, outer: Proxy) -> Proxy:
        if not (torch.is_grad_enabled() and requires_grad(outer)):
            return outer
        detached = calls.method(self._tx, "detach", outer).as_proxy()
        detached.node.meta[_DETACHED] = True
        self.detached[outer.node] = detached
        sides = (outer, detached) if self._taken else (detached, outer)
        gated = chosen(self._tx, self._predicate, *sides)
        histories.pass_on(outer.node.meta["example_value"], example_of(gated))
        return gated.as_proxy()


def _splice(tx: Any, arm: ArmTrace, gate: _Gate, changed: Sequence[Proxy]) -> dict[Node, Proxy]:
    """Copy the arm's operations into the main graph; return where each of its values is now."""
    values: dict[Node, Proxy] = {}
    copies: dict[int, Proxy] = {}
    for outer, inner in arm.lifted.items():
        if is_among(outer, changed):
            # What the arm changes is one tensor by all its names, also where it is a result.
            example = outer.node.meta["example_value"]
            if id(example) not in copies:
                copies[id(example)] = _own_copy(tx, outer, gate)
            values[inner.node] = values[outer.node] = copies[id(example)]
        else:
            values[inner.node] = gate(outer)
    # What a gate within the arm detaches is detached here: a chain of gates in which each reads the
    # one before it twice would be an expression of exponential size to a compiler that fuses it.
    detached = {
        inner.node: gate.detached[outer.node]
        for outer, inner in arm.lifted.items()
        if outer.node in gate.detached
    }
    for node in arm.graph.nodes:
        if node in values or node.op == "placeholder":
            continue
        if _DETACHED in node.meta and node.args[0] in detached:
            values[node] = detached[node.args[0]]
            continue
        arguments, keywords = (_outside(each, values) for each in (node.args, node.kwargs))
        copy = tx.output.create_proxy(node.op, node.target, arguments, keywords)
        copy.node.meta.update(node.meta)
        values[node] = copy
    return values


def _own_copy(tx: Any, outer: Proxy, gate: _Gate) -> Proxy:
    entered = gate(outer)
    if entered is outer:
        entered = calls.method(tx, "clone", outer).as_proxy()
    # The arm's operations have run on the original's fake tensor, which knows what they made of it.
    entered.node.meta["example_value"] = outer.node.meta["example_value"]
    return entered


def _outside(arguments: Any, values: dict[Node, Proxy]) -> Any:
    """Return arguments of an arm's node with the main graph's values in place of the arm's."""
    replaced: Any = values.__getitem__  # map_arg's own annotation only foresees nodes
    return torch.fx.node.map_arg(arguments, replaced)


def _mapped(value: Any, values: dict[Node, Proxy]) -> Any:
    if value is None:
        return None
    proxy = value.as_proxy()
    return values.get(proxy.node, proxy)


def _rewrap(tx: Any, pair: Pair, proxy: Proxy) -> VariableTracker:
    if pair.is_number:
        result = SymNodeVariable.create(tx, proxy, pair.present.sym_num)
    else:
        example = example_of(pair.present)
        proxy.node.meta.pop("example_value", None)  # the copy's; Dynamo sets it itself
        result = wrap_fx_proxy(tx, proxy, example_value=example)
    assert isinstance(result, VariableTracker)
    return result


def _operands(then_arm: ArmTrace, else_arm: ArmTrace, pairs: Sequence[Pair]) -> list[Proxy]:
    """Return what both arms read, each tensor of the main graph once."""
    outer: dict[Node, Proxy] = {}
    for arm in (then_arm, else_arm):
        for proxy in arm.lifted:
            outer.setdefault(proxy.node, proxy)
    for pair in pairs:
        for value, arm in ((pair.then_value, then_arm), (pair.else_value, else_arm)):
            if value is not None and value.as_proxy().node.graph is not arm.graph:
                outer.setdefault(value.as_proxy().node, value.as_proxy())
    return list(outer.values())
