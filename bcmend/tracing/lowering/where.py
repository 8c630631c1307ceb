"""Lower a branch to selects: both arms run in the main graph, ``torch.where`` picks each result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node, Proxy
from torch.fx.node import map_arg

from bcmend import meta_keys
from bcmend.delivery import grad_fn_label
from bcmend.dynamo import compat, fx_graph
from bcmend.dynamo.values import TensorValue, Value, example_of
from bcmend.tracing.effects import memory_form
from bcmend.tracing.lowering.arm_graphs import requires_grad
from bcmend.tracing.merging.merge import Pair
from bcmend.tracing.merging.shared_memory import is_among
from bcmend.tracing.numbers import arm_selections
from bcmend.tracing.numbers.arm_selections import Selected
from bcmend.tracing.numbers.predicates import chosen
from bcmend.tracing.speculation.arms import ArmTrace

#: In the meta of a tensor that a gate has detached.


def by_where(
    tx: compat.Tracer,
    predicate: TensorValue,
    then_arm: ArmTrace,
    else_arm: ArmTrace,
    pairs: Sequence[Pair],
    changed: Sequence[Proxy] = (),
) -> list[Value]:
    """Run both arms and select each result.

    Where gradients flow, what enters an arm goes through a gate: the tensor itself where the arm is
    taken, a detached one where not, so that no NaN or infinity of the untaken arm's gradient gets
    back (multiplying it by zero would keep it). Of what is ``changed``, each arm gets its own copy.
    """
    then_values = _splice(tx, then_arm, _Gate(tx, predicate, taken=True), changed)
    else_values = _splice(tx, else_arm, _Gate(tx, predicate, taken=False), changed)
    arm_selections.move(tx, then_values, else_values)
    merged: list[Value] = []
    for pair in pairs:
        one = _mapped(pair.then_value, then_values)
        other = _mapped(pair.else_value, else_values)
        if one is None or other is None or pair.is_number:
            merged.append(_rewrap(tx, pair, one if one is not None else other))
        else:
            if pair.selected is not None:
                one, other = _of_one_size(tx, pair.selected, one, other, then_values, else_values)
            result = chosen(tx, predicate, one, other)
            merged.append(memory_form.as_in(tx, result, example_of(pair.present)))
    return merged


def gated(
    tx: compat.Tracer, predicate: TensorValue, values: Sequence[Proxy], *, taken: bool
) -> list[Proxy]:
    """Return ``values`` in the form in which they enter what may run speculatively."""
    return list(map(_Gate(tx, predicate, taken=taken), values))


class _Gate:
    """Makes the form in which a tensor of the main graph enters a speculated arm.

    ``detached`` maps each tensor to what it is in the arm where no gradients flow.
    """

    def __init__(self, tx: compat.Tracer, predicate: TensorValue, *, taken: bool) -> None:
        self._tx, self._predicate, self._taken = tx, predicate, taken
        self.detached: dict[Node, Proxy] = {}

    def __call__(self, outer: Proxy) -> Proxy:
        if not (torch.is_grad_enabled() and requires_grad(outer)):
            return outer
        detached = fx_graph.method(self._tx, "detach", outer).as_proxy()
        detached.node.meta[meta_keys.DETACHED] = True
        self.detached[outer.node] = detached
        sides = (outer, detached) if self._taken else (detached, outer)
        gated = chosen(self._tx, self._predicate, *sides)
        grad_fn_label.pass_on(outer.node.meta["example_value"], example_of(gated))
        return gated.as_proxy()


def _splice(
    tx: compat.Tracer, arm: ArmTrace, gate: _Gate, changed: Sequence[Proxy]
) -> dict[Node, Proxy]:
    """Copy the arm's operations into the main graph; return what its nodes have become there."""
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
    replaced: Any = values.__getitem__  # map_arg's own annotation only foresees nodes
    for node in arm.graph.nodes:
        if node in values or node.op == "placeholder":
            continue
        if meta_keys.DETACHED in node.meta and node.args[0] in detached:
            values[node] = detached[node.args[0]]
            continue
        arguments, keywords = map_arg((node.args, node.kwargs), replaced)
        values[node] = tx.output.create_proxy(node.op, node.target, arguments, keywords)
        values[node].node.meta.update(node.meta)
    return values


def _own_copy(tx: compat.Tracer, outer: Proxy, gate: _Gate) -> Proxy:
    entered = gate(outer)
    if entered is outer:
        entered = fx_graph.method(tx, "clone", outer).as_proxy()
    # The arm's operations have run on the original's fake tensor, which knows what they made of it.
    entered.node.meta["example_value"] = outer.node.meta["example_value"]
    return entered


def _mapped(value: Any, values: dict[Node, Proxy]) -> Any:
    if value is None:
        return None
    proxy = value.as_proxy()
    return values.get(proxy.node, proxy)


def _of_one_size(
    tx: compat.Tracer,
    selected: Selected,
    one: Proxy,
    other: Proxy,
    then_values: dict[Node, Proxy],
    else_values: dict[Node, Proxy],
) -> tuple[Proxy, Proxy]:
    """Return both sides in the size of the one that a mask has selected in its arm."""
    mask = _mapped(selected.mask, then_values if selected.then_side else else_values)
    if selected.then_side:
        return one, selected.of(tx, mask, other).as_proxy()
    return selected.of(tx, mask, one).as_proxy(), other


def _rewrap(tx: compat.Tracer, pair: Pair, proxy: Proxy) -> Value:
    if pair.is_number:
        result = compat.SymNodeVariable.create(tx, proxy, pair.present.sym_num)
    else:
        example = example_of(pair.present)
        proxy.node.meta.pop("example_value", None)  # the copy's; Dynamo sets it itself
        result = compat.wrap_fx_proxy(tx, proxy, example_value=example)
    assert isinstance(result, compat.VariableTracker)
    return result
