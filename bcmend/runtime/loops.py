"""A loop that a tensor ends, as ``torch.while_loop``.

Reads a branch whose one arm comes back to its own jump (a turn of the loop) while the other leaves;
adds one operator to the main graph that makes turns as long as the condition says so; returns the
live-ins of the jump at which the loop is left. A turn is traced twice: first as it stands, to learn
which live-ins it changes, then with those as inputs of a graph of their own. Where a turn does
anything but compute tensors and count, there is no such operator, and the caller unrolls the loop.

A loop over a range is one that a tensor ends too, if its ``break`` depends on one: the operator
counts its turns, and what the range still holds is known at the end, where the condition never
held. So is a loop over an open range (``open_ranges``): there the iterator is carried as a number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch._dynamo.variables import TensorVariable, TupleVariable
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builder import wrap_fx_proxy
from torch.fx import Proxy

from bcmend.rewrite.plan import SPLIT
from bcmend.runtime import calls, in_place, iterators, lower, sinks, watches
from bcmend.runtime.arms import Arm, ArmTrace, trace_arm
from bcmend.runtime.in_place import InPlace
from bcmend.runtime.loop_values import (
    Carried,
    MoreChanges,
    NoLoop,
    carried_values,
    exhausted,
    in_the_operator,
    out_of_the_operator,
    stand_ins,
    what_changes,
)
from bcmend.runtime.merge import constant, example_of
from bcmend.runtime.open_ranges import Exhausted, OpenIterator, number_in, with_number
from bcmend.runtime.operations import hazards_of, storage_of
from bcmend.runtime.per_trace import kept
from bcmend.runtime.sites import LiveSite
from bcmend.runtime.while_operator import Body, Ends, has_proxy, requires_grad, write_while

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
    for staying, each in enumerate(arms):
        arm = _with_another_turn(each)
        trial = _trial_turn(tx, target, site, arm)
        if trial is None:
            continue
        values, gradients = trial
        try:
            carried = what_changes(arm.inputs.items, values.items, gradients=gradients)
            while True:
                try:
                    return _lower(tx, target, site, condition, arm, carried, staying)
                except MoreChanges as more:
                    carried = more.carried
        except NoLoop:
            return None
    return None


def _with_another_turn(arm: Arm) -> Arm:
    """Return an arm that finds one more number in the open ranges that it goes over."""
    inputs = [
        each.in_half(True) if isinstance(each, OpenIterator) else each for each in arm.inputs.items
    ]
    return arm.with_inputs(inputs)


def _trial_turn(
    tx: Any, target: Any, site: LiveSite, arm: Arm
) -> tuple[TupleVariable, bool] | None:
    """Trace one turn; return the live-ins of the next, and whether gradients flow through it.

    ``None`` if the arm leaves the loop.
    """
    found: list[TupleVariable] = []

    def turn(tracer: Any) -> VariableTracker:
        found.extend(_turn(tx, site, arm)[1:])
        return constant(None)

    trace = trace_arm(tx, target, replace(arm, calls=turn), lambda: sinks.open_arm(tx))
    if not found:
        return None
    before = trace.lifted if isinstance(trace, ArmTrace) else ()
    proxies = [*before, *(each.as_proxy() for each in found[0].items if has_proxy(each))]
    gradients = torch.is_grad_enabled() and (
        not isinstance(trace, ArmTrace) or any(map(requires_grad, proxies))
    )
    return found[0], gradients


def _turn(tx: Any, site: LiveSite, arm: Arm) -> tuple[Any, ...]:
    """Call an arm up to the jump of its loop; return the condition and the live-ins there."""
    with _until_the_jump(tx, site):
        try:
            arm.call(tx)
        except _TurnEnds as turn:
            return turn.end or ()
    return ()


def _lower(
    tx: Any,
    target: Any,
    site: LiveSite,
    condition: VariableTracker,
    arm: Arm,
    carried: Carried,
    staying: int,
) -> LoopEnd:
    inputs = list(arm.inputs.items)
    turns_left = _turns_left(tx, inputs, carried)
    _require_gradients_fit(inputs, carried)
    more = _more(tx, site, inputs)
    entered: list[Proxy] = []
    outcome: list[Any] = []

    def turn(tracer: Any) -> VariableTracker:
        entering = stand_ins(tx, tracer, inputs, carried, entered)
        values = _turn(tx, site, arm.with_inputs(entering))
        if not values:
            raise NoLoop("the loop is left without its jump")
        after = carried_values(values[1].items, entering, carried)
        found = [in_the_operator(tx, each, carried) for each in after]
        outcome.append((values[0], found + _more(tx, site, values[1].items)))
        return constant(None)

    trace = trace_arm(tx, target, replace(arm, calls=turn), lambda: sinks.open_arm(tx))
    if not isinstance(trace, ArmTrace):
        raise NoLoop("a turn has effects")
    exits = _side_exits(trace)
    changes = _changes_in_place(tx, trace, carried)
    changed = [each.outer for each in changes]
    _require_pure(tx, trace, entered, changed, gradients=carried.gradients)
    predicate = lower.as_predicate(tx, condition)
    given = [number_in(inputs[each].realize()) for each in (*carried.tensors, *carried.numbers)]
    numbers = [in_the_operator(tx, each, carried) for each in given]
    left = [each.predicate for each in exits]
    first_exit = 1 + len(numbers) + len(more)
    first_change = first_exit + len(left)
    copies = [_copy(tx, each) for each in changed]
    start = [predicate, *numbers, *more, *(_false(tx, each) for each in left), *copies]
    ends = Ends(
        staying == 0,
        turns_left,
        1 + len(numbers) if more else None,
        range(first_exit, first_change),
    )
    values = [*outcome[0][1], *left]
    body = Body(trace, entered, outcome[0][0], values, carried.gradients, changed)
    results = write_while(tx, body, start, ends)
    for draft, result in zip(exits, results[first_exit:first_change], strict=True):
        sinks.append(tx, replace(draft, predicate=result))
    in_place.write_back(tx, changes, results[first_change : first_change + len(changes)])
    for position, result in zip((*carried.tensors, *carried.numbers), results[1:], strict=False):
        _watch(tx, site, inputs[position], result)
        before = inputs[position].realize()
        after = out_of_the_operator(tx, number_in(before), result)
        is_left_early = more and isinstance(before, OpenIterator)
        inputs[position] = Exhausted() if is_left_early else with_number(before, after)
    for position in carried.ranges:
        inputs[position] = exhausted(inputs[position])
    end = results[0]
    assert isinstance(end, TensorVariable)
    return LoopEnd(end, TupleVariable(inputs), 1 - staying, bool(more) or turns_left is not None)


def _side_exits(trace: ArmTrace) -> list[sinks.Draft]:
    """Return the side exits of a turn, which ends the loop if it takes one.

    Raises ``NoLoop`` if the turn has other records.
    """
    drafts: list[sinks.Draft] = list(trace.records)
    if not all(each.is_exit and isinstance(each.predicate, TensorVariable) for each in drafts):
        raise NoLoop("a turn has effects")
    return drafts


def _false(tx: Any, like: VariableTracker | None) -> VariableTracker:
    """Return the condition of a side exit before the first turn."""
    assert isinstance(like, TensorVariable)
    return calls.function(tx, torch.zeros, (), dtype=torch.bool, device=example_of(like).device)


def _changes_in_place(tx: Any, trace: ArmTrace, carried: Carried) -> list[InPlace]:
    """Return the tensors that a turn changes in place, and changes nothing else.

    They are carried too: each turn works on a copy, and the last one is written back.
    """
    effects = trace.effects
    if effects.attributes or effects.containers or effects.other:
        raise NoLoop("a turn has effects")
    if not effects.tensors:
        return []
    if carried.gradients:
        raise NoLoop("a turn changes a tensor in place, where gradients flow")
    hazards = hazards_of(trace.graph.nodes, tx.fake_mode)
    try:
        return in_place.plan_in_place(tx, (trace, trace), [hazards, hazards])
    except in_place.CannotSettle as problem:
        raise NoLoop(str(problem)) from None


def _copy(tx: Any, outer: Proxy) -> VariableTracker:
    copied: VariableTracker = wrap_fx_proxy(
        tx, tx.output.create_proxy("call_method", "clone", (outer,), {})
    )
    return copied


def _more(tx: Any, site: LiveSite, inputs: Sequence[VariableTracker]) -> list[TensorVariable]:
    """Return whether an open range has one more number, for a loop that does not ask itself.

    Raises ``NoLoop`` where there are two.
    """
    if site.kind == SPLIT:
        return []
    found = [each for each in inputs if isinstance(each, OpenIterator)]
    if len(found) > 1:
        raise NoLoop("two ranges")
    return [lower.as_predicate(tx, each.condition(tx)) for each in found]


def _turns_left(tx: Any, inputs: Sequence[VariableTracker], carried: Carried) -> int | None:
    """Return what is left of the range that a loop goes over, if it goes over one."""
    if not carried.ranges:
        return None
    if not iterators.end_here(tx, [inputs[each] for each in carried.ranges], []):
        raise NoLoop("a range that is seen elsewhere")
    left = _length_of(inputs[carried.ranges[0]])
    if left <= UNROLLED_AT_MOST:
        raise NoLoop("few turns")
    return left


def _require_gradients_fit(inputs: Sequence[VariableTracker], carried: Carried) -> None:
    if carried.gradients:
        return
    tensors = (inputs[each].realize() for each in carried.tensors)
    if any(example_of(each).requires_grad for each in tensors):  # type: ignore[arg-type]
        raise NoLoop("a tensor that requires gradients, where none are recorded")


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
        raise NoLoop("a range of unknown length")
    return length


def _require_pure(
    tx: Any,
    trace: ArmTrace,
    entered: Sequence[Proxy],
    changed: Sequence[Proxy],
    *,
    gradients: bool,
) -> None:
    # The turns of a loop inside were judged when that loop was written.
    nodes = [n for n in trace.graph.nodes if n.target is not torch.ops.higher_order.while_loop]
    hazards = hazards_of(nodes, tx.fake_mode)
    from_outside = [proxy.node.meta["example_value"] for proxy in (*entered, *trace.lifted)]
    tensors = [each for each in from_outside if isinstance(each, torch.Tensor)]
    carried = {storage_of(each.node.meta["example_value"]) for each in changed}
    if any(storage_of(each) in hazards.writes - carried for each in tensors):
        raise NoLoop("a turn changes a tensor in place")
    if not gradients:
        return
    if hazards.random:
        raise NoLoop("a turn draws random numbers, where gradients flow")
    if hazards.partial:
        raise NoLoop("a turn may fail on the data, and the backward makes one that was not made")
