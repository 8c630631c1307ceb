"""Lower a loop that a tensor ends to ``torch.while_loop``.

One arm of the loop's branch comes back to the jump, the other leaves the loop. An iteration is
traced twice: first to learn which live-ins of the jump it changes, then with those as inputs of a
graph. Where it does anything but compute tensors and count, the caller unrolls the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, cast

import torch
from torch.fx import Proxy

from bcmend.dynamo import compat, fx_graph, shape_env, snapshots
from bcmend.dynamo.models import containers
from bcmend.dynamo.slots import pushed
from bcmend.dynamo.values import TensorValue, Value, constant, example_of
from bcmend.names import SPLIT
from bcmend.tracing.gradients import arm_selects
from bcmend.tracing.heap import heap, match
from bcmend.tracing.heap.heap import Heap
from bcmend.tracing.loops import carried_places, loop_results, open_ranges, turn_effects
from bcmend.tracing.loops.loop_ends import LoopEnd
from bcmend.tracing.loops.loop_values import (
    Apart,
    Carried,
    MoreChanges,
    carried_values,
    containers_changed,
    exhausted,
    in_the_operator,
    out_of_the_operator,
    stand_ins,
    what_changes,
    with_one_form,
)
from bcmend.tracing.loops.open_ranges import OpenIterator, number_in, with_number
from bcmend.tracing.loops.while_operator import Body, Ends, write_while
from bcmend.tracing.lowering.arm_graphs import requires_grad
from bcmend.tracing.merging import in_place
from bcmend.tracing.numbers import predicates, scalars
from bcmend.tracing.output import record_builder
from bcmend.tracing.search import refused_forms
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.sites import body_states, nesting_limits
from bcmend.tracing.sites.locations import Location
from bcmend.tracing.sites.refusal import NotThisWay, Refusal, attempt
from bcmend.tracing.sites.site_table import LiveSite
from bcmend.tracing.speculation import iterators
from bcmend.tracing.speculation.arms import Arm, ArmFailure, ArmTrace, trace_arm

#: A range with at most so many iterations left is unrolled: one with a branch takes 24 ms to trace.
UNROLLED_AT_MOST: Final = 8
#: Iterations after which an unrolled loop is not tried again: the first may change a form for good.
TRIED_AT_MOST: Final = 2


class _IterationEnds(BaseException):
    """Ends the tracing of an iteration that has come back to the jump of its loop.

    ``end`` is the condition and the live-ins there; ``None`` if it came back inside another branch.
    No ``Exception``, which would be a failure of an arm to what traces arms in between.
    """

    def __init__(self, end: tuple[TensorValue, compat.TupleVariable] | None) -> None:
        super().__init__("an iteration of a loop has ended")
        self.end = end


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop to be lowered; ``arm``, at position ``staying``, comes back to the jump.

    ``places`` are what a turn stores to; ``inputs`` are the live-ins of the jump, then what those
    hold, ``apart`` where several values stand for one. ``is_last`` says that the live-ins have no
    other form, so that a turn that stops is mended where it does.
    """

    tx: compat.Tracer
    target: Any
    site: LiveSite
    condition: Value
    arm: Arm
    staying: int
    inputs: Sequence[Value] = ()
    apart: Apart = field(default_factory=Apart)
    places: Sequence[Location] = ()
    is_last: bool = True
    scope: int = field(default_factory=compat.current_scope_id)

    def that_stores(self, places: Sequence[Location], parted_at: Collection[int] = ()) -> _Loop:
        """Return the loop with places that its turns store to, and with its inputs.

        ``parted_at`` is which of these are containers that its turns replace.
        """
        held = [carried_places.read(self.tx, each) for each in places]
        inputs = [*self.arm.inputs.items, *with_one_form(self.tx, held)]
        apart = Apart()
        taken = apart.take(self.tx, inputs, parted_at)
        return replace(self, inputs=taken, apart=apart, places=places)

    def live_ins_and_held(self, values: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        """Return the live-ins of the jump among ``values``, and what the places hold."""
        count, found = len(self.arm.inputs.items), self.apart.together(values)
        return found[:count], found[count:]

    @property
    def held_from(self) -> int:
        """The position in ``inputs`` of the first one that a place holds."""
        return self.apart.count(len(self.arm.inputs.items))

    def heap_with(self, values: Sequence[Value]) -> Heap:
        """Return the heap as it is now, with the live-ins of the jump among ``values``."""
        live_ins = compat.TupleVariable(list(values)[: len(self.arm.inputs.items)])
        return heap.of(self.tx, live_ins, self.scope)

    def trace(self, iteration: Callable[[Any], None]) -> ArmTrace | ArmFailure:
        """Trace what ``iteration`` does, given the tracer, as an arm."""

        def call(tracer: Any) -> Value:
            iteration(tracer)
            return constant(None)

        arm, open_arm = replace(self.arm, calls=call), partial(record_builder.open_arm, self.tx)
        with (
            refused_forms.on_side(self.tx.output, object()),
            nesting_limits.trying(self.tx, is_last=self.is_last),
        ):
            return trace_arm(self.tx, self.target, arm, open_arm)

    def iterate(self, entering: Sequence[Value]) -> tuple[Any, ...]:
        """Trace a turn; return the condition where it comes back to the jump, and the next inputs.

        And the heap there. Empty if it does not come back.
        """
        inputs, held = self.live_ins_and_held(entering)
        carried_places.write(self.tx, self.places, held)
        with _until_the_jump(self.tx, self.site, self.places):
            try:
                self.arm.with_inputs(inputs).call(self.tx)
            except _IterationEnds as iteration:
                if iteration.end is None and _makes_many_turns(self.site, self.arm):
                    body_states.join_exits(self.tx, self.site)
                if iteration.end is None:
                    return ()
                condition, after = iteration.end
                turned = self.heap_with(after.items)
                left = self.apart.of(self.tx, after.items, entering)
                return condition, compat.TupleVariable(left), turned
        return ()


def at_the_jump(
    tx: compat.Tracer, site: LiveSite, condition: Value, inputs: compat.TupleVariable
) -> None:
    """End the iteration being traced, if this is the jump of its loop."""
    for iteration in reversed(nesting_limits.ITERATIONS.of(tx.output)):
        if iteration.place == site.place:
            if iteration.tracer is not tx.output.current_tracer:
                raise _IterationEnds(None)
            held = [carried_places.read(tx, each) for each in iteration.stored]
            after = compat.TupleVariable(with_one_form(tx, [*inputs.items, *held]))
            raise _IterationEnds((predicates.as_predicate(tx, condition), after))


def _goes_over_items(arm: Arm) -> bool:
    items = (each.realize() for each in arm.inputs.items)
    return any(snapshots.is_consumable(e) or isinstance(e, OpenIterator) for e in items)


def _makes_many_turns(site: LiveSite, arm: Arm) -> bool:
    """Return whether a loop is to be an operator, as far as what it goes over tells."""
    items = [each.realize() for each in arm.inputs.items]
    ranges = compat.RangeIteratorVariable, OpenIterator
    if any(snapshots.is_consumable(each) and not isinstance(each, ranges) for each in items):
        return False
    left = [containers.items_left(e) for e in items if isinstance(e, compat.RangeIteratorVariable)]
    return not any(isinstance(each, int) and _are_few(site, each) for each in left)


def _until_the_jump(
    tx: compat.Tracer, site: LiveSite, stored: Sequence[Location]
) -> AbstractContextManager[None]:
    iteration = nesting_limits.Iteration(site.place, tx.output.current_tracer, stored)
    return pushed(nesting_limits.ITERATIONS.of(tx.output), iteration)


def run_loop(
    tx: compat.Tracer, target: Any, site: LiveSite, condition: Value, arms: tuple[Arm, Arm]
) -> LoopEnd | None:
    """Lower a loop to one operator; ``None`` where neither arm comes back, or that is refused."""
    if not site.holds(Claim.LEFT):
        nesting_limits.note_unrolled(tx, "it goes on where a turn has left it")
        return None
    if not site.holds(Claim.CARRIED):
        nesting_limits.note_unrolled(tx, loop_results.TOLD_APART)
        return None
    for staying, each in enumerate(arms):
        # The arm finds one more number in the open ranges that it goes over.
        items = each.inputs.items
        inputs = [one.in_half(True) if isinstance(one, OpenIterator) else one for one in items]
        for given, is_last in _with_ranges_counted(tx, site, inputs):
            transaction = fx_graph.Transaction(tx)
            arm = each.with_inputs(with_one_form(tx, given))
            loop, trial = _tried(_Loop(tx, target, site, condition, arm, staying, is_last=is_last))
            if trial is None:
                transaction.roll_back()
                break
            if trial.is_barred:  # so it is however the range is counted
                nesting_limits.note_unrolled(tx, trial.is_barred)
                transaction.roll_back()
                return None
            end = attempt(partial(_lowered, loop, trial))
            if not isinstance(end, Refusal):
                return end
            nesting_limits.note_unrolled(tx, end.detail)
            transaction.roll_back()
            if not _goes_over_items(each):
                body_states.mend_at_questions(tx)
        else:
            return None
    return None


def require_an_end(
    tx: compat.Tracer, site: LiveSite, condition: Value, arms: tuple[Arm, Arm]
) -> None:
    """Raise ``TooDeep`` before a loop is unrolled that may have more turns than can be nested."""
    open_ranges_left = [each for each in arms[0].inputs.items if isinstance(each, OpenIterator)]
    levels = nesting_limits.LEVELS
    reason = nesting_limits.TooDeep(f"more than {levels} branches, one in another")
    if not all(each.has_an_end(tx, levels) for each in open_ranges_left):
        raise reason
    if _goes_by_sizes(tx, condition, levels):
        reason.at_fault = frozenset([site])  # its sizes may be computed in front of the graph
        raise reason


def _goes_by_sizes(tx: compat.Tracer, condition: Value, turns: int) -> bool:
    """Return whether a loop goes on for a size that the data decide, which may be more than so."""
    if not isinstance(condition, compat.SymNodeVariable) or scalars.has_tensor(tx, condition):
        return False
    symbols = shape_env.symbols_in(condition.sym_num)
    known = tx.output.shape_env.var_to_range
    limits = [known[each] for each in symbols if each in known]
    return bool(limits) and all(each.lower >= 0 and each.upper > turns for each in limits)


def _are_few(site: LiveSite, left: int) -> bool:
    """Return whether so many turns are traced one by one, which takes less than an operator."""
    return left <= UNROLLED_AT_MOST and site.holds(Claim.UNROLLED)


def _with_ranges_counted(
    tx: compat.Tracer, site: LiveSite, inputs: list[Any]
) -> Iterator[tuple[list[Any], bool]]:
    """Yield live-ins as they are, and again with the range that is gone over counted by the loop.

    Then an iteration may read its number, and the last one may be read behind the loop. With each
    comes whether it is the last form.
    """
    place = _range_to_count(tx, site, inputs)
    yield inputs, place is None
    if place is not None:
        counted = list(inputs)
        counted[place] = open_ranges.as_open_range(tx, inputs[place])
        yield counted, True


def _range_to_count(tx: compat.Tracer, site: LiveSite, inputs: list[Any]) -> int | None:
    """Return the place of the one range that is gone over, if a loop may count it."""
    places = [at for at, each in enumerate(inputs) if type(each) is compat.RangeIteratorVariable]
    if len(places) != 1 or not iterators.end_here(tx, [inputs[places[0]]], []):
        return None
    left = containers.items_left(inputs[places[0]])
    return places[0] if isinstance(left, int) and not _are_few(site, left) else None


@dataclass(frozen=True, slots=True)
class _Trial:
    """One iteration, traced: the next live-ins, and whether gradients flow through it.

    ``is_barred`` says why there is no operator for it, whatever it is given; empty if there may be.
    ``places`` are those that it stores to.
    """

    values: compat.TupleVariable
    gradients: bool
    is_barred: str = ""
    places: Sequence[Location] = ()


def _lowered(loop: _Loop, trial: _Trial) -> LoopEnd:
    """Write the operator for what one iteration has changed, and for more if others change it."""
    carried = what_changes(loop.inputs, trial.values.items, gradients=trial.gradients)
    while True:
        try:
            return _lower(loop, carried)
        except MoreChanges as more:
            carried = more.carried


def _tried(loop: _Loop) -> tuple[_Loop, _Trial | None]:
    """Trace an iteration, and again while it changes what is not carried yet, or not apart."""
    places, parted_at = list[Location](), list[int]()
    while True:
        entered = attempt(partial(loop.that_stores, places, parted_at))
        if isinstance(entered, Refusal):
            return loop, _Trial(loop.arm.inputs, gradients=False, is_barred=entered.detail)
        loop, trial = entered, _trial(entered)
        if trial is None or trial.is_barred:
            return loop, trial
        before, after = (loop.apart.together(e) for e in (loop.inputs, trial.values.items))
        more = [at for at in containers_changed(before, after) if at not in parted_at]
        if not more and set(trial.places) <= set(places):
            return loop, trial
        places = [*dict.fromkeys([*places, *trial.places])]
        parted_at = [*parted_at, *more]


def _trial(loop: _Loop) -> _Trial | None:
    """Trace one iteration; ``None`` if the arm leaves the loop."""
    found: list[compat.TupleVariable] = []
    trace = loop.trace(lambda tracer: found.extend(loop.iterate(loop.inputs)[1:]))
    if not found:
        return None
    kinds = (compat.TensorVariable, compat.SymNodeVariable)
    proxies = [each.as_proxy() for each in found[0].items if isinstance(each, kinds)]
    gradients = torch.is_grad_enabled() and (
        not isinstance(trace, ArmTrace) or any(map(requires_grad, [*trace.lifted, *proxies]))
    )
    if not isinstance(trace, ArmTrace):
        return _Trial(found[0], gradients)  # on other values it may be traced
    places = attempt(partial(carried_places.places_in, trace.effects, loop.inputs))
    if isinstance(places, Refusal):
        return _Trial(found[0], gradients, places.detail)
    return _Trial(found[0], gradients, places=places)


def _lower(loop: _Loop, carried: Carried) -> LoopEnd:
    tx, site, inputs = loop.tx, loop.site, list(loop.inputs)
    iterations_left = _iterations_left(tx, site, inputs, carried)
    _require_gradients_fit(inputs, carried)
    _require_held_are_new(loop, carried)
    more = _more(tx, site, inputs)
    entered: list[Proxy] = []
    outcome: list[tuple[TensorValue, list[TensorValue]]] = []
    heaps = [loop.heap_with(loop.arm.inputs.items)]

    def iteration(tracer: Any) -> None:
        entering = stand_ins(tx, tracer, inputs, carried, entered)
        loop_results.note_entering(tx, site, [entering[each] for each in carried.tensors])
        end = loop.iterate(entering)
        if not end:
            raise NotThisWay("the loop is left inside of a turn")
        after = carried_values(end[1].items, entering, carried)
        found = [in_the_operator(tx, each, carried) for each in after]
        outcome.append((end[0], found + _more(tx, site, end[1].items)))
        heaps.append(end[2])

    trace = loop.trace(iteration)
    if not isinstance(trace, ArmTrace):
        raise NotThisWay("a turn writes output, makes a check or changes an object")
    if not set(carried_places.places_in(trace.effects, inputs)) <= set(loop.places):
        raise NotThisWay("a turn stores where others do not")
    exits = turn_effects.side_exits(trace)
    changes = turn_effects.changes_in_place(tx, trace, carried)
    changed = [each.outer for each in changes]
    turn_effects.require_pure(tx, trace, entered, changed, carried.gradients)
    predicate = _not_behind_a_failure(loop, predicates.as_predicate(tx, loop.condition))
    positions = (*carried.tensors, *carried.numbers)
    given = [number_in(inputs[each].realize()) for each in positions]
    numbers = [in_the_operator(tx, each, carried) for each in given]
    taken = [cast(TensorValue, each.predicate) for each in exits]
    first_exit = 1 + len(numbers) + len(more)
    first_change = first_exit + len(exits)
    copies = [fx_graph.method(tx, "clone", each) for each in changed]
    start = [predicate, *numbers, *more, *(_false(tx, each) for each in taken), *copies]
    at_more = 1 + len(numbers) if more else None
    ends = Ends(loop.staying == 0, iterations_left, at_more, range(first_exit, first_change))
    condition, values = outcome[0]
    body = Body(trace, entered, condition, [*values, *taken], carried.gradients, changed)
    with arm_selects.under(tx, site.policy.untaken_gradients):
        results = write_while(tx, body, start, ends)
    for draft, result in zip(exits, results[first_exit:first_change], strict=True):
        record_builder.append(tx, replace(draft, predicate=result))
    in_place.write_back(tx, changes, results[first_change:])
    for position, result in zip(positions, results[1:], strict=False):
        before = inputs[position].realize()
        inputs[position] = _left_in(tx, before, result, is_asked=not more)
    for position in carried.ranges:
        inputs[position] = exhausted(inputs[position])
    loop_results.watch_carried(tx, site, carried, (loop.inputs, values, inputs))
    live_ins, held = loop.live_ins_and_held(inputs)
    carried_places.write(tx, loop.places, held)
    match.require_match(loop.heap_with(live_ins), heaps, Finding(Claim.CARRIED, site))
    is_by_range = bool(more) or iterations_left is not None
    behind = compat.TupleVariable(live_ins)
    return LoopEnd(results[0], behind, 1 - loop.staying, is_by_range, site)


def _left_in(tx: compat.Tracer, before: Value, result: TensorValue, *, is_asked: bool) -> Value:
    """Return what a carried live-in is behind the loop; ``is_asked``: the loop asks its range."""
    if isinstance(before, OpenIterator) and not is_asked:
        return containers.ExhaustedRange()
    return with_number(before, out_of_the_operator(tx, number_in(before), result))


def _not_behind_a_failure(loop: _Loop, predicate: TensorValue) -> TensorValue:
    """Return the condition with which a loop begins: it makes no turn where a check has failed.

    Eager execution does not come to it then, and it may have no end.
    """
    tx, device = loop.tx, example_of(predicate).device
    around = nesting_limits.ITERATIONS.of(tx.output)
    for each in record_builder.failed_checks(tx, around[-1][1] if around else None):
        failed = cast(TensorValue, each)
        if example_of(failed).device != device:
            failed = fx_graph.method(tx, "to", failed, device)
        if loop.staying == 0:
            predicate = predicates.both(tx, predicate, predicates.negated(tx, failed))
        else:
            predicate = predicates.either(tx, predicate, failed)
    return predicate


def _false(tx: compat.Tracer, like: TensorValue) -> TensorValue:
    """Return the condition of a side exit before the first iteration."""
    return fx_graph.function(tx, torch.zeros, (), dtype=torch.bool, device=example_of(like).device)


def _more(tx: compat.Tracer, site: LiveSite, inputs: Sequence[Value]) -> list[TensorValue]:
    """Return whether an open range has one more number, for a loop that does not ask itself."""
    if site.kind == SPLIT:
        return []
    found = [each for each in inputs if isinstance(each, OpenIterator)]
    if len(found) > 1:
        raise NotThisWay("a turn goes over two ranges")
    return [predicates.as_predicate(tx, each.condition(tx)) for each in found]


def _iterations_left(
    tx: compat.Tracer, site: LiveSite, inputs: Sequence[Value], carried: Carried
) -> int | None:
    """Return what is left of the range that a loop goes over, if it goes over one."""
    if not carried.ranges:
        return None
    if not iterators.end_here(tx, [inputs[each] for each in carried.ranges], []):
        raise NotThisWay("the range that a turn goes on in is used elsewhere")
    left = containers.items_left(inputs[carried.ranges[0]])
    if not isinstance(left, int):
        raise NotThisWay("a turn goes on in a range of unknown length")
    if _are_few(site, left):
        nesting_limits.note_few_turns(tx, site)
        raise NotThisWay("the loop makes few turns")
    return left


def _require_held_are_new(loop: _Loop, carried: Carried) -> None:
    for position in carried.tensors:
        if position >= loop.held_from:
            carried_places.require_new(loop.inputs[position].realize())


def _require_gradients_fit(inputs: Sequence[Value], carried: Carried) -> None:
    tensors = (inputs[each].realize() for each in carried.tensors)
    if not carried.gradients and any(requires_grad(each.as_proxy()) for each in tensors):
        raise NotThisWay("a tensor requires gradients while none are recorded")
