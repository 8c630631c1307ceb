"""Mend one branch: trace both arms, take the first lowering that is equal to eager, or none.

The lowerings and the order in which they are tried:

- nothing: the arms change nothing that is seen later;
- guard: one arm raised while it was traced; a record raises for it after the graph, or, where it
  is not certain that eager execution raises too, the call is made again in plain Python;
- where: both arms run; only where neither can fail on the data, draws random numbers (all later
  ones would be others than in eager), or is expensive;
- cond: the taken arm runs; never where an arm draws random numbers and gradients flow, since the
  backward of ``torch.cond`` draws them again.

Where gradients flow, random operators are taken out of the arms first (``hoist_random``). What
cannot be is refused, unless the policy asks for where: then both arms draw.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from bcmend.dynamo import compat, fx_graph, slots
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.values import Value, example_of, items_in
from bcmend.tracing.deopt import one_sided, rerun_policy
from bcmend.tracing.effects import sharing
from bcmend.tracing.entry import draw_ranges, watched_sides
from bcmend.tracing.heap import heap, match
from bcmend.tracing.loops import while_loops
from bcmend.tracing.loops.loop_ends import LoopEnd
from bcmend.tracing.lowering import shared_results
from bcmend.tracing.lowering.branch_lowering import TracedBranch, attempt_to_lower
from bcmend.tracing.merging import lazy_phi
from bcmend.tracing.numbers import (
    ahead,
    arm_selections,
    constant_buffers,
    constant_tensors,
    filled_masks,
    predicates,
    size_questions,
)
from bcmend.tracing.output import deferred_exceptions, record_builder
from bcmend.tracing.output.record_builder import Kind
from bcmend.tracing.programs import arm_conditions
from bcmend.tracing.programs.arm_conditions import ArmCondition
from bcmend.tracing.search import budget, refused_forms, sides
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.search.falsified import falsify
from bcmend.tracing.sites import body_states, nesting_limits, site_table
from bcmend.tracing.sites.lifted_inputs import SetAside
from bcmend.tracing.sites.refusal import HalfWritten, Refusal
from bcmend.tracing.sites.site_table import LiveSite
from bcmend.tracing.speculation import iterators
from bcmend.tracing.speculation.arm_failures import Raised
from bcmend.tracing.speculation.arms import Arm, ArmFailure, ArmTrace, Effects, trace_arm

#: What is traced if the condition is true, and if it is false.
Arms = tuple[Arm, Arm]

#: Guards of arms that were traced for branches that were refused.
_DROPPED_GUARDS: Final[Slot[set[Any]]] = Slot(set, rolls_back=False)


def mend_branch(
    tx: compat.Tracer, target: Any, site: LiveSite, form: int, condition: Value, arms: Arms
) -> Value | Arm | None:
    """Return the live-outs of the branch, a tuple; ``None`` where the jump has to stay.

    Or return the arm that is taken, to be called outside the site: it is the program's code alone.
    """
    if is_left_by_exit(tx, site):
        return arms[not truth_taken(tx, site, condition)]
    if form and not site.is_worth_widening:
        return None
    if budget.is_half_over() and not site.outcome.lowering:
        body_states.take_condition_ahead(tx, getattr(condition, "sym_num", None))
    if _is_given_up(site) and not _may_be_ahead(site, condition):
        site.refuse("search-too-long", budget.over())
        return None
    empty = filled_masks.truth_if_empty(tx, condition)
    if empty is not None and not site.holds(Claim.KEPT) and deferred_exceptions.can_exit(tx, site):
        deferred_exceptions.leave_side(tx, site, condition, empty)
        site.mended("guard", "where nothing is selected the call is made in plain Python")
        return arms[empty].call(tx)
    sides = watched_sides.of_branch(tx, site, condition)
    guards = tx.output.guards
    before, dropped = copy.copy(guards.inner), _DROPPED_GUARDS.of(tx.output)
    put_slots_back = slots.remember(tx.output)
    with (
        refused_forms.trying(tx.output, site.key, form, _identity(condition)) as attempt,
        nesting_limits.mending(tx, site, form),
    ):
        if attempt.known is not None:
            site.refuse(*attempt.known)
            outcome = None
        else:
            outcome = _mend(tx, target, site, form, condition, arms)
        for slug, detail in site.outcome.refused.items() if outcome is None else ():
            attempt.refuse(slug, detail)
    if outcome is None:
        _require_selections(tx, site)
        if empty is not None and site.place is None:
            body_states.state_of(tx.output.root_tx.f_code).noted_empty.append(site)
        note_refused(tx, site)
        # The trace ends at the jump, unless another form is mended. What only the arms looked at
        # must not make it compile again.
        dropped.update(guards.inner - before)
        guards.inner = before
        put_slots_back()
        sharing.require_decided(tx, condition)
    else:
        guards.update(dropped)  # Dynamo makes a guard once, when it first looks at something
        dropped.clear()
        rerun_policy.note(tx)  # what fails inside a graph that stock has not made
        watched_sides.add(tx, site, sides)
    return outcome


def _require_selections(tx: compat.Tracer, site: LiveSite) -> None:
    """Have what a refused arm has selected get the size of the other side, if that was not so."""
    if site.holds(Claim.SELECTED_ALIKE) and arm_selections.are_made_in(tx, site):
        falsify(Finding(Claim.SELECTED_ALIKE, site))


def is_left_by_exit(tx: compat.Tracer, site: LiveSite) -> bool:
    """Return whether the trace goes on with one side of a branch, and is left for the other."""
    return sides.side_of(site) is not None and _may_be_left(tx, site)


def _may_be_left(tx: compat.Tracer, site: LiveSite) -> bool:
    return one_sided.is_eligible(tx, site) and deferred_exceptions.can_exit(tx, site)


def note_refused(tx: compat.Tracer, site: LiveSite) -> None:
    """Note a branch at which the trace is going to stop, if it could be left by a side exit."""
    if _may_be_left(tx, site):
        one_sided.note_refused(tx, site)


def truth_taken(tx: compat.Tracer, site: LiveSite, condition: Value) -> bool:
    """Return the truth with which the trace goes on; the call is left where it is the other.

    What is computed in front of the graph is not asked: it may decide for the other side.
    """
    known = _known_truth(tx, site, condition)
    if known is not None:
        return known
    side = sides.side_of(site)
    assert side is not None
    one_sided.note_side(tx, site, side)
    deferred_exceptions.leave_side(tx, site, condition, not side)
    return side


def _identity(condition: Value) -> object:
    """Return what is one for all forms of a branch, where it is traced once."""
    is_in_the_graph = isinstance(condition, (compat.TensorVariable, compat.SymNodeVariable))
    return condition.as_proxy().node if is_in_the_graph else object()


#: What is said where a merged value is no older one, or another result, for what comes later.
_CHANGED_LATER: Final = "a value of the branch is changed in place later, or compared by identity"


def _is_given_up(site: LiveSite) -> bool:
    """Return whether a branch is not lowered any more, since the search is over."""
    return budget.is_over() and not site.outcome.lowering


def _refuse_what_is_told_apart(site: LiveSite, evidence: str) -> None:
    if evidence in match.HOW:
        site.refuse("arms-differ", evidence)
        return
    leave_together = evidence == shared_results.LEAVE_TOGETHER
    site.refuse("alias-changed", evidence if leave_together else _CHANGED_LATER)


def _may_be_ahead(site: LiveSite, condition: Value) -> bool:
    """Return whether arms are looked at for a condition that may be computed before the graph."""
    return type(condition) is compat.TensorVariable and site.place is None


def _mend(
    tx: compat.Tracer, target: Any, site: LiveSite, form: int, condition: Value, arms: Arms
) -> Value | Arm | None:
    told_apart = site.found(Claim.NEW, form)
    if told_apart is not None:
        _refuse_what_is_told_apart(site, told_apart.evidence)
        return None
    if iterators.hold_an_open_generator(arms[0].arguments, tx.output.side_effects):
        site.refuse("consumes-iterator", "a generator that stands in a block cannot be taken back")
        return None
    known = _known_truth(tx, site, condition)
    if known is not None:
        site.outcome.known = "the condition is computed of constants"
        result = (arms[0] if known else arms[1]).call(tx)
        if not nesting_limits.is_in_an_arm(tx):
            nesting_limits.count_anew(tx)  # there was nothing to lower
            constant_buffers.require_unchanged(tx)
        return result
    known = truth_before(tx, site, condition)
    if known is not None:
        arm = arms[0] if known else arms[1]
        # Breaks in it end the trace, as the jump would. Where graphs may break, that is the place.
        is_whole = not body_states.may_break(tx.output.root_tx.f_code)
        return arm if is_whole else arm.call(tx)
    if site.place is not None and not form:
        while_loops.at_the_jump(tx, site, condition, arms[0].inputs)
        if nesting_limits.times(tx, site) <= while_loops.TRIED_AT_MOST:
            put_slots_back = slots.remember(tx.output)
            end = while_loops.run_loop(tx, target, site, condition, arms)
            if end is not None:
                outcome = _behind_the_loop(tx, target, site, end, arms)
                if outcome is None:  # the loop would run in the graph, and again behind it
                    raise HalfWritten(", ".join(site.outcome.refused.values()))
                return outcome
            put_slots_back()
        else:
            while_loops.require_an_end(tx, site, condition, arms)
    return _branch(tx, target, site, form, condition, arms)


def _known_truth(tx: compat.Tracer, site: LiveSite, condition: Value) -> bool | None:
    """Return the truth of a tensor whose value is known.

    At the jump of a loop only where torch knows it: later iterations are mostly data-dependent.
    """
    if type(condition) is not compat.TensorVariable:
        return None
    known = getattr(example_of(condition), "constant", None)
    if known is None and site.place is None:
        known = constant_tensors.number_in(tx, condition)
    return None if known is None else bool(known)


def _are_plain(arms: Sequence[ArmTrace]) -> bool:
    """Return whether arms only compute, check, and change what is the call's own.

    One of them is captured as it is where the condition is known. What else an arm does would not
    be compared with eager execution then: Dynamo has it as in code without the branch. A variable
    that is unbound on one side is no plain result either.
    """
    results = [each for arm in arms for each in items_in(arm.result) or ()]
    are_checks = all(each.kind in _CHECKS for arm in arms for each in arm.records)
    return (
        are_checks
        and all(_changes_what_is_its_own(arm.effects) for arm in arms)
        and not (any(lazy_phi.may_be_unbound(each.realize()) for each in results))
    )


_CHECKS: Final = (Kind.CHECK, Kind.EXIT, Kind.TRIAL, Kind.CANARY)


def _changes_what_is_its_own(effects: Effects) -> bool:
    others = effects.tensors or effects.consumed or effects.other
    return (
        not others
        and all(
            isinstance(each.owner.mutation_type, compat.AttributeMutationNew)
            for each in effects.attributes
        )
        and all(
            isinstance(each.variable.mutation_type, compat.ValueMutationNew)
            for each in effects.containers
        )
    )


def truth_before(tx: compat.Tracer, site: LiveSite, condition: Value) -> bool | None:
    """Return the truth of a condition that is known before its branch is looked at.

    It is the same for all random numbers, or was computed in front of the graph, for this branch.
    Not at the jump of a loop: the numbers of later turns are others.
    """
    if site.place is not None:
        return None
    known = draw_ranges.truth_of(tx, condition)
    if known is not None:
        site.outcome.known = "every number that can be drawn gives the condition the same truth"
        return known
    known = ahead.truth_of_condition(tx, condition, site)
    if known is not None:
        site.mended("ahead", "the condition is computed in front of the graph")
        if _may_be_left(tx, site):
            one_sided.note_decided(tx, site, known)
        predicates.keep_deciding(tx, condition)
    return known


#: Refusals of arms that are captured as they are where the condition is known.
_OF_VALUES: Final = ("arms-differ", "search-too-long", "random-under-gradients")


def _branch(
    tx: compat.Tracer, target: Any, site: LiveSite, form: int, condition: Value, arms: Arms
) -> Value | None:
    site_table.forget_refusal()
    traces: list[ArmTrace | ArmFailure] = []
    put_slots_back = slots.remember(tx.output)
    are_alike = site.holds(Claim.SELECTED_ALIKE)
    taken = None if are_alike else deferred_exceptions.predicate_of(tx, site, condition)
    with iterators.ending(tx, returns=site.form(form).returns):
        for arm, truth in zip(arms, (True, False), strict=True):
            with (
                size_questions.holding(tx, condition, truth),
                refused_forms.on_side(tx.output, truth),
                arm_conditions.on_side(tx, ArmCondition(condition, truth, site, taken)),
            ):
                traces.append(trace_arm(tx, target, arm, lambda: record_builder.open_arm(tx)))
            if truth and isinstance(traces[0], ArmTrace):
                given = [each for other in arms for each in other.arguments]
                aside = SetAside.of(tx, traces[0].entries.values(), given)
    then_arm, else_arm = traces
    if isinstance(then_arm, ArmTrace):
        aside.give_again(tx, else_arm.entries if isinstance(else_arm, ArmTrace) else {})
    site.outcome.traceable = _traceable(traces)
    if isinstance(then_arm, ArmFailure) or isinstance(else_arm, ArmFailure):
        put_slots_back()  # an arm that does not fail is called, and traced for good
        return deferred_exceptions.defer_raising_arm(
            tx, site, condition, arms, (then_arm, else_arm)
        )
    transaction = fx_graph.Transaction(tx)
    predicate = taken
    if predicate is None:
        predicate = deferred_exceptions.predicate_of(tx, site, condition)
    branch = TracedBranch(site, predicate, (then_arm, else_arm), form, condition)
    if _is_given_up(site):
        outcome: Value | Refusal = Refusal("search-too-long", budget.over())
        transaction.roll_back()
    else:
        outcome = attempt_to_lower(tx, branch, transaction)
    if isinstance(outcome, Refusal):
        site.refuse(outcome.slug, outcome.detail)
        is_of_values = site.place is None and outcome.slug in _OF_VALUES
        plain = body_states.state_of(tx.output.root_tx.f_code).plain
        if is_of_values and _are_plain((then_arm, else_arm)):
            plain.add(site.key)
        if is_of_values and site.key in plain:
            ahead.note_condition(tx, condition, site)
        return None
    joined = heap.of(tx, outcome, returns=site.form(form).returns)
    heaps = [then_arm.heap, else_arm.heap]
    is_tensor_of = partial(sharing.is_on_side, tx)
    match.require_match(joined, heaps, Finding(Claim.NEW, site, form), is_tensor_of)
    return outcome


def _traceable(traces: Sequence[ArmTrace | ArmFailure]) -> bool | None:
    """Return the truth for which alone a branch can be traced; ``None`` if there is no such."""
    one, other = (
        2 if isinstance(each, ArmTrace) else int(each.raised is Raised.UNKNOWN) for each in traces
    )
    return None if one == other else one > other


def note_left_out(tx: compat.Tracer, key: str, condition: Value) -> None:
    """Note the condition of a branch that is left out in this call, if its arms were plain."""
    site = site_table.find(key)
    state = body_states.state_of(tx.output.root_tx.f_code)
    if site is not None and site.active and key in state.plain:
        ahead.note_condition(tx, condition, site)


def _behind_the_loop(
    tx: compat.Tracer, target: Any, site: LiveSite, end: LoopEnd, arms: Arms
) -> Value | None:
    """Go on where a loop was left."""
    one, other = end.arms(arms)
    if end.by_exhaustion:
        outcome = _branch(tx, target, site, 0, end.predicate, (one, other))
    else:
        outcome = (one, other)[end.leaving].call(tx)
    if outcome is not None:
        site.mended("while_loop", "the number of iterations depends on a tensor")
    return outcome
