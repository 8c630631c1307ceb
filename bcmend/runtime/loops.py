"""A loop that a tensor ends, as ``torch.while_loop``.

Reads a branch whose one arm comes back to its own jump (a turn of the loop) while the other leaves;
adds one operator to the main graph that makes turns as long as the condition says so; returns the
live-ins of the jump at which the loop is left. A turn is traced twice: first as it stands, to learn
which live-ins it changes, then with those as inputs of a graph of their own. Where a turn does
anything but compute tensors and count, there is no such operator, and the caller unrolls the loop.

A loop over a range is one that a tensor ends too, if its ``break`` depends on one: the operator
counts its turns, and what the range still holds is known at the end, where the condition never
held.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch._dynamo.variables import TensorVariable, TupleVariable
from torch._dynamo.variables.base import ValueMutationNew, VariableTracker
from torch._dynamo.variables.builder import wrap_fx_proxy
from torch._dynamo.variables.iter import IteratorVariable
from torch._dynamo.variables.lists import RangeIteratorVariable
from torch._dynamo.variables.tensor import SymNodeVariable
from torch._higher_order_ops.while_loop import _create_unbacked_symint
from torch.fx import Graph, GraphModule, Node, Proxy

from bcmend.runtime import iterators, lower, scalars, sinks, snapshots, watches
from bcmend.runtime.arms import Arm, ArmTrace, trace_arm
from bcmend.runtime.carried import becoming_differentiable, tied
from bcmend.runtime.merge import constant, difference, example_of
from bcmend.runtime.operations import hazards_of, storage_of
from bcmend.runtime.per_trace import kept
from bcmend.runtime.sites import LiveSite

__all__ = ["TRIED_AT_MOST", "LoopEnd", "at_the_jump", "run_loop"]

#: A range with at most so many turns left is unrolled.
UNROLLED_AT_MOST: Final = 8


#: Turns after which an unrolled loop is not tried again: the first one may change a form for good.
TRIED_AT_MOST: Final = 2


class _TurnEnds(BaseException):
    """A turn has come back to the jump of its loop; ends the tracing of the turn.

    ``end`` is the condition and the live-ins there; ``None`` if the turn came back under another
    condition. No ``Exception``, since what traces arms in between takes those for failures of its
    own.
    """

    def __init__(self, end: tuple[TensorVariable, TupleVariable] | None) -> None:
        super().__init__("a turn of a loop has ended")
        self.end = end


@dataclass(frozen=True, slots=True)
class LoopEnd:
    """Where a loop was left.

    Attributes:
        predicate: the condition there.
        inputs: the live-ins there.
        leaving: position among the arms of the one that leaves.
        by_exhaustion: whether the loop may also have run out of items, its condition unmet; the
            other arm then finds the iterator exhausted.
    """

    predicate: TensorVariable
    inputs: TupleVariable
    leaving: int
    by_exhaustion: bool


@dataclass(frozen=True, slots=True)
class _Carried:
    """What a loop carries from turn to turn, by position among the live-ins."""

    tensors: tuple[int, ...]
    numbers: tuple[int, ...]
    ranges: tuple[int, ...]


class _NoLoop(Exception):
    """A turn does something that ``torch.while_loop`` has no form for."""


def _turns(tx: Any) -> list[tuple[object, Any]]:
    """Return the turns being traced: the place of each loop's jump and its tracer."""
    return kept(tx.output, "turns", list)


def at_the_jump(tx: Any, site: LiveSite, condition: VariableTracker, inputs: TupleVariable) -> None:
    """End the turn being traced, if this is the jump of its loop."""
    for place, tracer in reversed(_turns(tx)):
        if place == site.place:
            if tracer is not tx.output.current_tracer:
                raise _TurnEnds(None)
            raise _TurnEnds((lower.as_predicate(tx, condition), inputs))


@contextmanager
def _until_the_jump(tx: Any, site: LiveSite) -> Iterator[None]:
    _turns(tx).append((site.place, tx.output.current_tracer))
    try:
        yield
    finally:
        _turns(tx).pop()


def run_loop(
    tx: Any, target: Any, site: LiveSite, condition: VariableTracker, arms: tuple[Arm, Arm]
) -> LoopEnd | None:
    """Make the turns of a loop; ``None`` where that is not to be done, or cannot."""
    inputs = arms[0].inputs
    for staying, arm in enumerate(arms):
        values = _trial_turn(tx, target, site, arm)
        if values is None:
            continue
        try:
            carried = _what_changes(inputs.items, values.items)
            return _lower(tx, target, site, condition, arm, carried, staying)
        except _NoLoop:
            return None
    return None


def _trial_turn(tx: Any, target: Any, site: LiveSite, arm: Arm) -> TupleVariable | None:
    """Trace one turn; return the live-ins of the next. ``None`` if the arm leaves the loop."""
    found: list[TupleVariable] = []

    def turn(tracer: Any) -> VariableTracker:
        found.extend(_turn(tx, site, arm)[1:])
        return constant(None)

    trace_arm(tx, target, replace(arm, calls=turn), lambda: sinks.open_arm(tx))
    return found[0] if found else None


def _turn(tx: Any, site: LiveSite, arm: Arm) -> tuple[Any, ...]:
    """Call an arm up to the jump of its loop; return the condition and the live-ins there."""
    with _until_the_jump(tx, site):
        try:
            arm.call(tx)
        except _TurnEnds as turn:
            return turn.end or ()
    return ()


def _what_changes(before: Sequence[VariableTracker], after: Sequence[VariableTracker]) -> _Carried:
    """Return what a turn changes. Raises ``_NoLoop`` for what cannot be carried."""
    kinds: dict[str, list[int]] = {"tensor": [], "number": [], "range": [], "same": []}
    if len(before) != len(after):
        raise _NoLoop("other live-ins")
    for position, (one, other) in enumerate(zip(before, after, strict=True)):
        kinds[_kind_of_change(one.realize(), other.realize())].append(position)
    if len(kinds["range"]) > 1:
        raise _NoLoop("two ranges")
    return _Carried(tuple(kinds["tensor"]), tuple(kinds["number"]), tuple(kinds["range"]))


def _kind_of_change(one: VariableTracker, other: VariableTracker) -> str:
    if isinstance(one, RangeIteratorVariable) and one is other:
        return "range"
    if snapshots.is_consumable(one):
        raise _NoLoop("an iterator")
    if _is_same(one, other):
        return "same"
    if isinstance(one, TensorVariable) and isinstance(other, TensorVariable):
        if difference(example_of(one), example_of(other)):
            raise _NoLoop("a tensor of another form")
        return "tensor"
    if _is_number(one) and _is_number(other):
        return "number"
    raise _NoLoop("a Python value")


def _is_number(value: VariableTracker) -> bool:
    if isinstance(value, SymNodeVariable):
        return isinstance(value.sym_num, torch.SymInt)
    return value.is_python_constant() and type(value.as_python_constant()) is int


def _is_same(one: VariableTracker, other: VariableTracker) -> bool:
    return one is other or _is_same_constant(one, other)


def _is_same_constant(one: VariableTracker, other: VariableTracker) -> bool:
    if not (one.is_python_constant() and other.is_python_constant()):
        return False
    left, right = one.as_python_constant(), other.as_python_constant()
    return type(left) is type(right) and repr(left) == repr(right)


class _UnknownItem(VariableTracker):
    """The number of a turn: a body that looks at it is not the same in every turn."""


class _Turns(IteratorVariable):
    """Stands for the range that a loop goes over: there is always another turn."""

    def tp_iternext_impl(self, tx: Any) -> VariableTracker:
        return _UnknownItem()


def _lower(
    tx: Any,
    target: Any,
    site: LiveSite,
    condition: VariableTracker,
    arm: Arm,
    carried: _Carried,
    staying: int,
) -> LoopEnd:
    gradients = torch.is_grad_enabled()
    inputs = list(arm.inputs.items)
    turns_left = _turns_left(tx, inputs, carried)
    _require_gradients_fit(inputs, carried, gradients=gradients)
    entered: list[Proxy] = []
    outcome: list[Any] = []

    def turn(tracer: Any) -> VariableTracker:
        stand_ins = _stand_ins(tx, tracer, inputs, carried, entered)
        values = _turn(tx, site, arm.with_inputs(stand_ins))
        if not values:
            raise _NoLoop("the loop is left without its jump")
        after = _carried_values(values[1].items, stand_ins, carried)
        outcome.append((values[0], [_in_the_operator(tx, each) for each in after]))
        return constant(None)

    trace = trace_arm(tx, target, replace(arm, calls=turn), lambda: sinks.open_arm(tx))
    if not isinstance(trace, ArmTrace) or trace.effects or trace.records:
        raise _NoLoop("a turn has effects")
    _require_pure(tx, trace, entered, gradients=gradients)
    predicate = lower.as_predicate(tx, condition)
    given = [inputs[each].realize() for each in (*carried.tensors, *carried.numbers)]
    start = [predicate, *(_in_the_operator(tx, each) for each in given)]
    body = _Body(trace, entered, outcome[0][0], outcome[0][1])
    results = _while(tx, body, start, stays_if=staying == 0, turns_left=turns_left)
    for position, result in zip((*carried.tensors, *carried.numbers), results[1:], strict=False):
        _watch(tx, site, inputs[position], result)
        inputs[position] = _out_of_the_operator(tx, inputs[position].realize(), result)
    for position in carried.ranges:
        inputs[position] = _exhausted(inputs[position])
    end = results[0]
    assert isinstance(end, TensorVariable)
    return LoopEnd(end, TupleVariable(inputs), 1 - staying, turns_left is not None)


def _turns_left(tx: Any, inputs: Sequence[VariableTracker], carried: _Carried) -> int | None:
    """Return what is left of the range that a loop goes over, if it goes over one."""
    if not carried.ranges:
        return None
    if not iterators.end_here(tx, [inputs[each] for each in carried.ranges], []):
        raise _NoLoop("a range that is seen elsewhere")
    left = _length_of(inputs[carried.ranges[0]])
    if left <= UNROLLED_AT_MOST:
        raise _NoLoop("few turns")
    return left


def _require_gradients_fit(
    inputs: Sequence[VariableTracker], carried: _Carried, *, gradients: bool
) -> None:
    if gradients:
        return
    tensors = (inputs[each].realize() for each in carried.tensors)
    if any(example_of(each).requires_grad for each in tensors):  # type: ignore[arg-type]
        raise _NoLoop("a tensor that requires gradients, where none are recorded")


def _watch(tx: Any, site: LiveSite, before: VariableTracker, after: VariableTracker) -> None:
    """See to it that nobody changes a carried tensor that eager execution has twice, in place.

    Without a turn, the tensor after the loop is the one before it.
    """

    def withdraw() -> None:
        site.withdraw("alias-changed", "a value of the loop is changed in place later")

    for value in (before.realize(), after):
        if isinstance(value, TensorVariable):
            watches.add(tx, example_of(value), withdraw)


def _length_of(variable: Any) -> int:
    length = variable.len
    if not isinstance(length, int):
        raise _NoLoop("a range of unknown length")
    return length


def _exhausted(variable: Any) -> VariableTracker:
    return RangeIteratorVariable(variable.start, variable.stop, variable.step, 0)


def _stand_ins(
    tx: Any, tracer: Any, inputs: Sequence[VariableTracker], carried: _Carried, entered: list[Proxy]
) -> list[VariableTracker]:
    """Return the live-ins of a turn with inputs of its graph for what it changes."""
    stand_ins = list(inputs)
    for position in carried.tensors:
        example = _fresh(tx, example_of(inputs[position].realize()))  # type: ignore[arg-type]
        proxy = tracer.create_graph_input(f"carried_{position}", torch.Tensor, example)
        entered.append(proxy)
        stand_ins[position] = wrap_fx_proxy(tx, proxy, example_value=example)
    for position in carried.numbers:
        if torch.is_grad_enabled():
            example = _fresh_number(tx)
            proxy = tracer.create_graph_input(f"number_{position}", torch.Tensor, example)
            entered.append(proxy)
            stand_in = wrap_fx_proxy(tx, proxy, example_value=example)
            count = _out_of_the_operator(tx, inputs[position].realize(), stand_in)
            scalars.count_from(tx, count)
            stand_ins[position] = count
            continue
        number = _create_unbacked_symint(tx.fake_mode, ignore_fresh_unbacked_symbols=True)
        proxy = tracer.create_graph_input(f"number_{position}", type(number), number)
        entered.append(proxy)
        stand_ins[position] = SymNodeVariable.create(tx, proxy, number)
    for position in carried.ranges:
        stand_ins[position] = _Turns(mutation_type=ValueMutationNew())
    return stand_ins


def _fresh_number(tx: Any) -> torch.Tensor:
    with tx.fake_mode:
        return torch.zeros((), dtype=torch.int64)


def _in_the_operator(tx: Any, value: VariableTracker) -> VariableTracker:
    """Return what stands for a carried value: a tensor for a number, where gradients flow.

    The backward of the operator takes tensors only.
    """
    if isinstance(value, TensorVariable) or not torch.is_grad_enabled():
        return value
    if isinstance(value, SymNodeVariable):
        counted = scalars.counted(tx, value)
        if counted is None:
            raise _NoLoop("a number that is more than counted, where gradients flow")
        return counted
    number = value.as_python_constant()
    proxy = tx.output.create_proxy(
        "call_function", torch.full, ((), number), {"dtype": torch.int64}
    )
    result: VariableTracker = wrap_fx_proxy(tx, proxy)
    return result


def _out_of_the_operator(
    tx: Any, before: VariableTracker, value: VariableTracker
) -> VariableTracker:
    """Return a carried value as the program has it."""
    if isinstance(before, TensorVariable) or not isinstance(value, TensorVariable):
        return value
    number = scalars.take(tx, value)
    if number is None:
        raise _NoLoop("a number that cannot be taken out")
    return number


def _fresh(tx: Any, example: torch.Tensor) -> torch.Tensor:
    with tx.fake_mode, torch.no_grad():
        fresh = torch.empty_strided(
            example.size(), example.stride(), dtype=example.dtype, device=example.device
        )
    if torch.is_grad_enabled() and (fresh.is_floating_point() or fresh.is_complex()):
        fresh.requires_grad_(True)
    return fresh


def _carried_values(
    after: Sequence[VariableTracker], before: Sequence[VariableTracker], carried: _Carried
) -> list[VariableTracker]:
    """Return the live-ins of the next turn that are carried. Raises ``_NoLoop`` for others."""
    if len(after) != len(before):
        raise _NoLoop("other live-ins")
    values = []
    for position in (*carried.tensors, *carried.numbers):
        value = after[position].realize()
        known = before[position]
        if isinstance(known, TensorVariable):
            if not isinstance(value, TensorVariable):
                raise _NoLoop("a tensor becomes something else")
            if difference(example_of(known), example_of(value)):
                raise _NoLoop("a tensor of another form")
        elif not _is_number(value):
            raise _NoLoop("a number becomes something else")
        values.append(value)
    moving = {*carried.tensors, *carried.numbers}
    for position, (one, other) in enumerate(zip(before, after, strict=True)):
        if position not in moving and not _is_same(one.realize(), other.realize()):
            raise _NoLoop("a value that a turn changes now and then")
    return values


def _require_pure(tx: Any, trace: ArmTrace, entered: Sequence[Proxy], *, gradients: bool) -> None:
    # The turns of a loop inside were judged when that loop was written.
    nodes = [n for n in trace.graph.nodes if n.target is not torch.ops.higher_order.while_loop]
    hazards = hazards_of(nodes, tx.fake_mode)
    from_outside = [proxy.node.meta["example_value"] for proxy in (*entered, *trace.lifted)]
    tensors = [each for each in from_outside if isinstance(each, torch.Tensor)]
    if any(storage_of(each) in hazards.writes for each in tensors):
        raise _NoLoop("a turn changes a tensor in place")
    if not gradients:
        return
    if hazards.random:
        raise _NoLoop("a turn draws random numbers, where gradients flow")
    if hazards.partial:
        raise _NoLoop("a turn may fail on the data, and the backward makes one that was not made")


@dataclass(frozen=True, slots=True)
class _Body:
    """One turn as a graph: what enters, the condition after it, and what it hands on."""

    trace: ArmTrace
    entered: Sequence[Proxy]
    predicate: TensorVariable
    values: Sequence[VariableTracker]


def _while(
    tx: Any,
    body: _Body,
    start: Sequence[VariableTracker],
    *,
    stays_if: bool,
    turns_left: int | None,
) -> list[VariableTracker]:
    """Add the operator; return the condition at the end and the carried values."""
    given = list(start)
    first = start[0]
    assert isinstance(first, TensorVariable)
    if turns_left is not None:
        given.append(_number_of_turns(tx, start[0]))
    outer = {proxy.node: proxy for proxy in body.trace.lifted}
    more = [node for node in _outer_values(body) if node not in outer]
    outer.update((proxy.node, proxy) for proxy in more)
    additional = captured = list(outer.values())
    graphs = {
        "cond": _condition_graph(given, additional, stays_if=stays_if, turns_left=turns_left),
        "body": _body_graph(body, given, additional),
    }
    gradients = torch.is_grad_enabled()
    names = []
    for name, graph in graphs.items():
        module = GraphModule(dict(tx.output.nn_modules), graph)
        names.append(tx.output.install_subgraph(f"while_{name}", module))
    attributes = [tx.output.create_proxy("get_attr", name, (), {}) for name in names]
    operands = lower.without_aliases(tx, [each.as_proxy() for each in given])
    if gradients:
        operands, additional = (
            lower.gated(tx, first, each, taken=stays_if) for each in (operands, additional)
        )
        operands = _with_gradients(tx, body, operands, captured, additional)
    proxy = tx.output.create_proxy(
        "call_function",
        torch.ops.higher_order.while_loop,
        (*attributes, tuple(operands), tuple(additional)),
        {},
    )
    results = list(wrap_fx_proxy(tx, proxy).items)  # type: ignore[attr-defined]
    if not gradients:
        return results
    return [
        results[0],
        *(
            _unless_no_turn(tx, first, one, _as_given(tx, operand, other), stays_if)
            for one, operand, other in zip(start[1:], operands[1:], results[1:], strict=False)
        ),
    ]


def _as_given(tx: Any, operand: Any, result: VariableTracker) -> VariableTracker:
    """Return a result without a gradient, if no turn gave it one."""
    if _requires_grad(operand) or not _requires_grad(result.as_proxy()):
        return result
    proxy = tx.output.create_proxy("call_method", "detach", (result.as_proxy(),), {})
    detached: VariableTracker = wrap_fx_proxy(tx, proxy)
    return detached


def _with_gradients(
    tx: Any,
    body: _Body,
    operands: Sequence[Any],
    outer: Sequence[Any],
    additional: Sequence[Proxy],
) -> list[Any]:
    """Return the first values, with a gradient where a later one has one."""
    inner = {known: placeholder.node for known, placeholder in body.trace.lifted.items()}
    constants = {
        inner.get(known, known.node): _requires_grad(each)
        for known, each in zip(outer, additional, strict=True)
    }
    carried = list(zip(body.entered, operands[1:], body.values, strict=False))
    starts = {proxy.node: _requires_grad(operand) for proxy, operand, _ in carried}
    ends = {proxy.node: value.as_proxy().node for proxy, _, value in carried if _has_proxy(value)}
    late = becoming_differentiable(starts, constants, ends)
    anchors = [each for each in (*operands, *additional) if _requires_grad(each)]
    return [
        operands[0],
        *(
            tied(tx, operand, anchors[0]) if proxy.node in late else operand
            for proxy, operand, _ in carried
        ),
        *operands[1 + len(carried) :],
    ]


def _requires_grad(value: Any) -> bool:
    example = value.node.meta.get("example_value") if isinstance(value, Proxy) else None
    return isinstance(example, torch.Tensor) and example.requires_grad


def _unless_no_turn(
    tx: Any, first: TensorVariable, before: VariableTracker, after: VariableTracker, stays_if: bool
) -> VariableTracker:
    """Return a carried value after the loop, which is the one before it if there was no turn.

    Torch's backward of the operator goes through one turn even where the forward made none.
    """
    sides = (after, before) if stays_if else (before, after)
    one, other = (side.as_proxy() for side in sides)
    return lower.chosen(tx, first, one, other)


def _number_of_turns(tx: Any, like: VariableTracker) -> VariableTracker:
    device = example_of(like).device  # type: ignore[arg-type]
    proxy = tx.output.create_proxy(
        "call_function", torch.zeros, ((),), {"dtype": torch.int64, "device": device}
    )
    result: VariableTracker = wrap_fx_proxy(tx, proxy)
    return result


def _outer_values(body: _Body) -> list[Any]:
    """Return the values of the main graph that a turn hands on without having looked at them."""
    graph = body.trace.graph
    proxies = [value.as_proxy() for value in (body.predicate, *body.values) if _has_proxy(value)]
    return [proxy for proxy in proxies if proxy.node.graph is not graph]


def _has_proxy(value: VariableTracker) -> bool:
    return isinstance(value, (TensorVariable, SymNodeVariable))


def _placeholders(
    graph: Graph, given: Sequence[VariableTracker], additional: Sequence[Proxy]
) -> tuple[list[Node], list[Node]]:
    carried = []
    for number, value in enumerate(given):
        node = graph.placeholder(f"carried_{number}")
        if _has_proxy(value):
            node.meta.update(value.as_proxy().node.meta)
        carried.append(node)
    others = []
    for proxy in additional:
        node = graph.placeholder(proxy.node.name)
        node.meta.update(proxy.node.meta)
        others.append(node)
    return carried, others


def _condition_graph(
    given: Sequence[VariableTracker],
    additional: Sequence[Proxy],
    *,
    stays_if: bool,
    turns_left: int | None,
) -> Graph:
    graph = Graph()
    carried, _ = _placeholders(graph, given, additional)
    example = carried[0].meta["example_value"]

    def call(function: Any, *arguments: Any) -> Node:
        node = graph.call_function(function, arguments)
        node.meta["example_value"] = example
        return node

    stays = call(torch.logical_not, carried[0])
    if stays_if:
        stays = call(torch.logical_not, stays)
    if turns_left is not None:
        stays = call(torch.logical_and, stays, call(torch.lt, carried[-1], turns_left))
    graph.output(stays)
    return graph


def _body_graph(
    body: _Body, given: Sequence[VariableTracker], additional: Sequence[Proxy]
) -> Graph:
    graph = Graph()
    carried, others = _placeholders(graph, given, additional)
    known: dict[Node, Node] = {}
    for proxy, node in zip(additional, others, strict=True):
        known[proxy.node] = node
    for outer, inner in body.trace.lifted.items():
        known[inner.node] = known[outer.node]
    for proxy, node in zip(body.entered, carried[1:], strict=False):
        known[proxy.node] = node
    for node in body.trace.graph.nodes:
        if node not in known:
            known[node] = graph.node_copy(node, known.__getitem__)
    results: list[Any] = []
    for value in (body.predicate, *body.values):
        if isinstance(value, TensorVariable):
            copy = graph.call_method("clone", (known[value.as_proxy().node],))
            copy.meta["example_value"] = example_of(value)
            results.append(copy)
        elif isinstance(value, SymNodeVariable):
            results.append(known[value.as_proxy().node])
        else:
            results.append(value.as_python_constant())
    if len(given) > len(results):
        counted = graph.call_function(torch.add, (carried[-1], 1))
        counted.meta["example_value"] = carried[-1].meta["example_value"]
        results.append(counted)
    graph.output(tuple(results))
    return graph
