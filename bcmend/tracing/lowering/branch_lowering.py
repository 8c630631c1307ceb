"""Lower one traced branch: merge the live-outs of its arms, and write the branch into the graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch.fx import Node

from bcmend.dynamo import compat, fx_graph, shape_env
from bcmend.dynamo.models import containers
from bcmend.dynamo.values import TensorValue, Value, example_of, has_own_operators
from bcmend.names import SPLIT
from bcmend.tracing.deopt import undo_log
from bcmend.tracing.effects import sharing
from bcmend.tracing.effects.operator_runs import storage_of
from bcmend.tracing.gradients import arm_selects
from bcmend.tracing.lowering import (
    arm_graphs,
    cond,
    functional_rng,
    hoist_random,
    lazy_output,
    shared_results,
    where,
)
from bcmend.tracing.lowering.choose_lowering import choose, hazards_of_arms, require_merged
from bcmend.tracing.lowering.cost_model import Operator
from bcmend.tracing.merging import in_place, location_phi, one_memory
from bcmend.tracing.merging.effect_plan import ending_containers, plan_changes
from bcmend.tracing.merging.in_place import InPlace
from bcmend.tracing.merging.live_outs import has_choice, merge_live_outs
from bcmend.tracing.merging.location_phi import LocationPhi, OneSide
from bcmend.tracing.merging.merge import Join, Merger, Pair
from bcmend.tracing.merging.one_memory import View
from bcmend.tracing.numbers import arm_selections, scalars, size_questions
from bcmend.tracing.output import object_snapshot
from bcmend.tracing.output.record_builder import Draft
from bcmend.tracing.programs import deciding_draws
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.sites.locations import Location, LocationKind
from bcmend.tracing.sites.phi import Build, Merged
from bcmend.tracing.sites.refusal import HalfWritten, Refusal, attempt
from bcmend.tracing.sites.site_table import LiveSite
from bcmend.tracing.speculation.arms import ArmTrace


@dataclass(frozen=True, slots=True)
class TracedBranch:
    """The two traced arms of one branch, and the condition that ``predicate`` is the truth of."""

    site: LiveSite
    predicate: TensorValue
    arms: tuple[ArmTrace, ArmTrace]
    form: int
    condition: Value
    #: Plans what the arms leave; of a branch of the program that is a tuple of live-outs.
    plan: Callable[[Join, tuple[Value, Value]], Build] = merge_live_outs

    @property
    def is_of_the_program(self) -> bool:
        return self.plan is merge_live_outs

    @property
    def returns(self) -> bool:
        return self.is_of_the_program and self.site.form(self.form).returns


def attempt_to_lower(
    tx: compat.Tracer, branch: TracedBranch, transaction: fx_graph.Transaction
) -> Value | Refusal:
    """Write a branch into the graph; return its live-outs, or why that is not possible.

    Then ``transaction`` is rolled back.

    Raises:
        HalfWritten: a part of it stands in the graph.
    """
    try:
        outcome = attempt(lambda: lower(tx, branch, transaction))
    except (compat.RestartAnalysis, compat.SkipFrame):
        raise
    except compat.TorchDynamoException as error:
        outcome = Refusal("arm-untraceable", str(error).strip().splitlines()[0])
    if isinstance(outcome, Refusal):
        if transaction.is_committed:
            raise HalfWritten(outcome.detail)
        transaction.roll_back()
    return outcome


def lower(tx: compat.Tracer, branch: TracedBranch, transaction: fx_graph.Transaction) -> Value:
    """Write a branch into the graph; return its live-outs. Raises ``Refusal``.

    Everything is planned before the first write. ``transaction`` is committed when in-place changes
    are written, which cannot be taken back.
    """
    require_merged(branch.arms)
    if has_own_operators(example_of(branch.predicate)):
        raise Refusal("arms-differ", f"{arm_graphs.OWN_OPERATORS} as the condition")
    if branch.returns:
        branch = _with_lists_of_its_own(tx, branch)
    join, build_result, changes = _planned(tx, branch)
    merger = join.merger
    records, is_deferred = _adopt_records(tx, branch, merger)
    _require_gradients_stay(merger.pairs)
    choice, tensors = choose(tx, branch.site, branch.arms, merger.pairs, returns=branch.returns)
    by_cond = choice.how is Operator.COND
    views = one_memory.views_among(merger.pairs, by_cond=by_cond)
    nodes_before = frozenset(tx.output.graph.nodes)
    with arm_selects.under(tx, branch.site.policy.untaken_gradients):
        merged = _write_lowering(tx, branch, choice.how, merger.pairs, tensors, transaction, views)
    how = choice.how.value
    if not by_cond:  # the graph of an arm of a cond has its own assertions
        shape_env.assert_again(tx, [each for arm in branch.arms for each in arm.asserted])
    if not (by_cond or merger.pairs or tensors):
        how = "nothing to merge"
        deciding_draws.keep(tx, branch.predicate)
    _watch_aliases(tx, branch, merger.pairs, merged, nodes_before)
    unlike = shared_results.unlike_on_the_sides(tx, merger.pairs, views, by_cond=by_cond)
    shares = branch.site.shares(branch.form)
    shared_results.watch(tx, unlike, merger.pairs, merged, shares)
    is_split = branch.site.kind == SPLIT
    shared_results.watch_kept(tx, merger, merged, shares, is_split=is_split)
    shared_results.note_objects(tx, merger.pairs, merged, branch.arms, branch.predicate, shares)
    written = {draft.site for arm in branch.arms for draft in arm.records}
    changed = dict.fromkeys(each.location for each in changes)
    opened = [each.owner for each in changed if each.kind is LocationKind.LOG]
    object_snapshot.require_closed(tx, written, opened)
    replaced = location_phi.apply(join, [*changes, *records], merged)
    shared_results.watch_written_back(tx, replaced, shares)
    result = build_result(merged)
    how = _described(branch, how, is_chosen_later=has_choice(result))
    if changes or records or tensors:
        how = f"{how} with effects"
    more = "; what only output reads is computed if the arm is taken" if is_deferred else ""
    if branch.is_of_the_program:
        branch.site.mended(how, f"{choice.why}{more}")
    return result


def _planned(tx: compat.Tracer, branch: TracedBranch) -> tuple[Join, Build, list[LocationPhi]]:
    """Plan what the arms leave behind; what is one object on one side alone is not merged."""
    apart: frozenset[int] = frozenset()
    while True:
        merger = _merger(tx, branch, apart)
        consumed = tuple(each for arm in branch.arms for each in arm.effects.consumed)
        join = Join(tx, branch.site, branch.form, branch.predicate, merger, consumed)
        one, other = branch.arms
        build_result = branch.plan(join, (one.result, other.result))
        changes = plan_changes(join, branch.arms)
        found = join.merger.torn()
        if not branch.site.holds(Claim.SHARED, branch.form):
            found |= shared_results.unlike_tensors(tx, join.merger.pairs)
            found |= shared_results.older_tensors(join.merger.pairs, branch.arms)
        if found <= apart:
            return join, build_result, changes
        apart |= found


def _merger(tx: compat.Tracer, branch: TracedBranch, apart: frozenset[int]) -> Merger:
    then_arm, else_arm = branch.arms
    return Merger(
        lambda value: value.as_proxy().node.graph in (then_arm.graph, else_arm.graph),
        lambda value: in_place.outer_form(value, branch.arms),
        lambda number: scalars.tensor_behind(tx, number.as_proxy()),
        lambda tensor: scalars.take(tx, tensor),
        effects=tx.output.side_effects,
        made={**then_arm.effects.made, **else_arm.effects.made},
        apart=apart,
        fixed=lambda: size_questions.fixed_by(tx, branch.condition),
        selected=partial(arm_selections.between, tx, branch.site),
        note_tuple=partial(sharing.add_tuple, tx, Finding(Claim.NEW, branch.site, branch.form)),
    )


def _with_lists_of_its_own(tx: compat.Tracer, branch: TracedBranch) -> TracedBranch:
    """Give each arm a list of its own for one that an arm has changed and both return.

    That is not observable where only the frame has had the list, and ends with the branch.
    """
    after = [
        {id(change.variable): change for change in arm.effects.containers if not change.is_open}
        for arm in branch.arms
    ]
    results = [list(vars(arm.result).get("items", ())) for arm in branch.arms]
    lists = {
        key: change
        for changes in after
        for key, change in changes.items()
        if type(change.variable) is compat.ListVariable
    }
    beside = [each for items in results for each in items if id(each) not in lists]
    ending = ending_containers(tx, branch.arms, beside, lists.keys()) if lists else frozenset()
    own = {key: change for key, change in lists.items() if key in ending}
    if not own:
        return branch
    arms = []
    for changes, arm, items in zip(after, branch.arms, results, strict=True):
        made: dict[int, Value] = {}
        for key, change in own.items():
            known = changes.get(key)
            state = change.before if known is None else known.after
            with compat.enter_new_scope():  # as if the arm had made it
                made[key] = containers.new_list(state["items"])
        own_items = [made.get(id(item), item) for item in items]
        arms.append(replace(arm, result=compat.TupleVariable(own_items)))
    return replace(branch, arms=(arms[0], arms[1]))


def _described(branch: TracedBranch, how: str, *, is_chosen_later: bool) -> str:
    how = f"split by {how}" if branch.form or branch.site.kind == SPLIT else how
    return branch.site.chosen_later(how) if is_chosen_later else how


def _require_gradients_stay(pairs: Sequence[Pair]) -> None:
    """Raise ``Refusal`` for an older tensor with gradients, where none are recorded."""
    if torch.is_grad_enabled():
        return
    for pair in pairs:
        if not pair.is_number and any(example_of(value).requires_grad for value in pair.values):
            detail = "a tensor that requires gradients, where none are recorded"
            raise Refusal("arms-differ", detail)


def _write_lowering(
    tx: compat.Tracer,
    branch: TracedBranch,
    how: Operator,
    pairs: Sequence[Pair],
    tensors: Sequence[InPlace],
    transaction: fx_graph.Transaction,
    views: Mapping[int, View],
) -> list[Value]:
    """Write the branch into the graph, and the changes in place after it.

    Of the pairs, ``views`` are made of what others become.
    """
    write = cond.by_cond if how is Operator.COND else where.by_where
    changed = [each.outer for each in tensors]
    arms = hoist_random.drawn_before(tx, branch.predicate, branch.arms)
    arms, states = functional_rng.entered(tx, arms)
    merged = [pair for at, pair in enumerate(pairs) if at not in views]
    wanted = [*merged, *(each.pair for each in tensors), *states]
    results = write(tx, branch.predicate, *arms, wanted, changed)
    values = [
        fx_graph.in_kind_of(tx, pair.present, value)
        for pair, value in zip(wanted, results, strict=True)
    ]
    if states:
        functional_rng.set_last_state(tx, values.pop())
    results = one_memory.with_views(tx, values[: len(merged)], views)
    transaction.commit()  # what is changed in place from here on cannot be taken back
    in_place.write_back(tx, tensors, values[len(merged) :])
    return results


def _adopt_records(
    tx: compat.Tracer, branch: TracedBranch, merger: Merger
) -> tuple[list[OneSide], bool]:
    """Plan what the records of both arms hold; return also whether any is computed later."""
    records, deferred, log = [], [], Location(LocationKind.LOG, None)
    for taken, arm in zip((True, False), branch.arms, strict=True):
        if not arm.records:
            continue
        (hazards,) = hazards_of_arms(tx, (arm,))
        late = lazy_output.inputs_of_records(tx, branch.site, merger, arm, hazards)
        for draft, inputs in zip(arm.records, late, strict=True):
            record = _adopt_record(merger, draft, taken, inputs)
            records.append(OneSide(log, taken, record))
        if any(inputs is not None for inputs in late):
            deferred.append((arm, hazards))
    for arm, hazards in deferred:
        lazy_output.take_out_unread(arm, hazards, merger.pairs)
    return records, bool(deferred)


def _adopt_record(
    merger: Merger, draft: Draft, taken: bool, late: Any
) -> Callable[[Merged], Draft]:
    """Plan condition and inputs of a record; nothing of ``late`` inputs is merged."""
    parts = (draft.predicate, draft.inputs if late is None else None)
    predicate, inputs = (part and merger.adopt(part, then_side=taken) for part in parts)

    def record(merged: Merged) -> Draft:
        given = inputs(merged) if inputs else late
        return replace(draft, predicate=predicate and predicate(merged), inputs=given)

    return record


def _watch_aliases(
    tx: compat.Tracer,
    branch: TracedBranch,
    pairs: Sequence[Pair],
    merged: Sequence[Value],
    nodes_before: Collection[Node],
) -> None:
    """Watch for later in-place changes of merged tensors that in eager are older tensors."""
    is_older = Finding(Claim.NEW, branch.site, branch.form)
    for pair, result in zip(pairs, merged, strict=True):
        for value, arm in zip(pair.sides, branch.arms, strict=True):
            if value is None or pair.is_number:
                continue
            older = list(_outer_tensors_of(tx, value, arm))
            if not older:
                continue
            assert isinstance(result, compat.TensorVariable)
            shared_results.watch_older(tx, example_of(result), older, is_older, nodes_before)
            for outer in older:
                if storage_of(outer) != storage_of(example_of(result)):
                    sharing.relate(tx, example_of(result), outer)


def _outer_tensors_of(
    tx: compat.Tracer, value: TensorValue, arm: ArmTrace
) -> Iterator[torch.Tensor]:
    """Yield the tensors of the main trace that ``value`` is, is a view of, or may be."""
    example = example_of(value)
    if value.as_proxy().node.graph is not arm.graph:
        yield example
    else:
        lifted = undo_log.examples_of(outer.node for outer in arm.lifted)
        found = {storage_of(each): each for each in reversed(list(lifted))}
        may_be = [example, *sharing.related_to(tx, example)]
        for memory in dict.fromkeys(map(storage_of, may_be)):
            if memory in found:
                yield found[memory]
