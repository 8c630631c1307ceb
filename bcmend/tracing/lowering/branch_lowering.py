"""Lower one traced branch: merge the live-outs of its arms, and write the branch into the graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from bcmend.dynamo import compat, fx_graph, shape_env
from bcmend.dynamo.values import TensorValue, Value, example_of
from bcmend.names import SPLIT
from bcmend.tracing.deopt import undo_log
from bcmend.tracing.effects import watches
from bcmend.tracing.effects.operator_runs import storage_of
from bcmend.tracing.lowering import cond, functional_rng, hoist_random, lazy_output, where
from bcmend.tracing.lowering.choose_lowering import choose, hazards_of_arms, require_merged
from bcmend.tracing.merging import in_place
from bcmend.tracing.merging.effect_plan import apply_changes, plan_changes
from bcmend.tracing.merging.in_place import InPlace
from bcmend.tracing.merging.journaled_container import PlannedJournal
from bcmend.tracing.merging.lazy_phi import has_choice, merge_live_outs
from bcmend.tracing.merging.merge import Merger, Pair
from bcmend.tracing.merging.planned import Join
from bcmend.tracing.numbers import predicates, scalars
from bcmend.tracing.output import object_snapshot, record_builder
from bcmend.tracing.output.record_builder import Draft
from bcmend.tracing.sites.phi import Build
from bcmend.tracing.sites.refusal import Refusal
from bcmend.tracing.sites.site_table import LiveSite
from bcmend.tracing.speculation import iterators
from bcmend.tracing.speculation.arms import ArmTrace


@dataclass(frozen=True, slots=True)
class Branch:
    """The two traced arms of one branch and the condition between them."""

    site: LiveSite
    predicate: TensorValue
    arms: tuple[ArmTrace, ArmTrace]
    form: int

    @property
    def returns(self) -> bool:
        return self.site.returning[self.form]


def lower(tx: compat.Tracer, branch: Branch, transaction: fx_graph.Transaction) -> Value:
    """Write a branch into the graph; return its live-outs. Raises ``Refusal``.

    Everything is planned before the first write. ``transaction`` is committed when in-place changes
    are written, which cannot be taken back.
    """
    require_merged(branch.arms)
    if branch.returns:
        branch = _with_lists_of_its_own(tx, branch)
    then_arm, else_arm = branch.arms
    merger = Merger(
        lambda value: value.as_proxy().node.graph in (then_arm.graph, else_arm.graph),
        lambda value: in_place.outer_form(value, branch.arms),
        lambda number: scalars.tensor_behind(tx, number.as_proxy()),
        lambda tensor: scalars.take(tx, tensor),
        effects=tx.output.side_effects,
        made={**then_arm.effects.made, **else_arm.effects.made},
    )
    results = then_arm.result, else_arm.result
    join = Join(tx, branch.site, branch.form, branch.predicate, merger)
    build_result = merge_live_outs(join, results)
    changes = plan_changes(join, branch.arms)
    records, is_deferred = _adopt_records(tx, branch, merger)
    _require_gradients_stay(merger.pairs)
    has_results = bool(merger.pairs)
    choice, tensors = choose(
        tx, branch.site, branch.arms, returns=branch.returns, has_results=has_results
    )
    how = choice.how
    merged = _write_lowering(tx, branch, how, merger.pairs, tensors, transaction)
    if how == "where":  # the graph of an arm of a cond has its own assertions
        shape_env.assert_again(tx, [each for arm in branch.arms for each in arm.asserted])
    if how == "where" and not (merger.pairs or tensors):
        how = "nothing to merge"
        predicates.keep_random_operators(tx, branch.predicate)
    _watch_aliases(tx, branch, merger.pairs, merged)
    opened = [change.variable for change in changes if isinstance(change, PlannedJournal)]
    object_snapshot.require_closed(tx, {draft.site for draft, _, _ in records}, opened)
    apply_changes(join, changes, merged)
    for draft, taken, build in records:
        append_under(tx, branch.predicate, draft, taken, build(merged))
    result = build_result(merged)
    how = _described(branch, how, is_chosen_later=has_choice(result))
    if changes or records or tensors:
        how = f"{how} with effects"
    more = "; what only output reads is computed if the arm is taken" if is_deferred else ""
    branch.site.mended(how, f"{choice.why}{more}")
    return result


def _with_lists_of_its_own(tx: compat.Tracer, branch: Branch) -> Branch:
    """Give each arm a list of its own for one that an arm has changed and both return.

    That is not observable where only the frame has had the list, and ends with the branch.
    """
    after = [
        {id(change.variable): change for change in arm.effects.containers if not change.is_open}
        for arm in branch.arms
    ]
    own = {
        key: change
        for changes in after
        for key, change in changes.items()
        if type(change.variable) is compat.ListVariable
        and iterators.end_here(tx, [change.variable], (), returns=True)
    }
    if not own:
        return branch
    arms = []
    for changes, arm in zip(after, branch.arms, strict=True):
        items = list(vars(arm.result).get("items", ()))
        for position, item in enumerate(items):
            if id(item) in own:
                known = changes.get(id(item))
                state = own[id(item)].before if known is None else known.after
                with compat.enter_new_scope():  # as if the arm had made it
                    kind = compat.ValueMutationNew()
                items[position] = compat.ListVariable(list(state["items"]), mutation_type=kind)
        arms.append(replace(arm, result=compat.TupleVariable(items)))
    return replace(branch, arms=(arms[0], arms[1]))


def _described(branch: Branch, how: str, *, is_chosen_later: bool) -> str:
    is_split = branch.site.kind == SPLIT
    how = f"split by {how}" if branch.form or is_split else how
    return f"choice by {how}" if is_chosen_later and not is_split else how


def _require_gradients_stay(pairs: Sequence[Pair]) -> None:
    """Raise ``Refusal`` for an older tensor with gradients, where none are recorded."""
    if torch.is_grad_enabled():
        return
    for pair in pairs:
        values = [value for value in (pair.then_value, pair.else_value) if value is not None]
        if not pair.is_number and any(example_of(value).requires_grad for value in values):
            detail = "a tensor that requires gradients, where none are recorded"
            raise Refusal("arms-differ", detail)


def _write_lowering(
    tx: compat.Tracer,
    branch: Branch,
    how: str,
    pairs: Sequence[Pair],
    tensors: Sequence[InPlace],
    transaction: fx_graph.Transaction,
) -> list[Value]:
    """Write the branch into the graph, and the changes in place after it."""
    write = {"where": where.by_where, "cond": cond.by_cond}[how]
    changed = [each.outer for each in tensors]
    arms = hoist_random.drawn_before(tx, branch.predicate, branch.arms)
    arms, states = functional_rng.entered(tx, arms)
    wanted = [*pairs, *(each.pair for each in tensors), *states]
    results = write(tx, branch.predicate, *arms, wanted, changed)
    values = [
        fx_graph.in_kind_of(tx, pair.present, value)
        for pair, value in zip(wanted, results, strict=True)
    ]
    if states:
        functional_rng.leave(tx, values.pop())
    transaction.commit()  # what is changed in place from here on cannot be taken back
    in_place.write_back(tx, tensors, values[len(pairs) :])
    return values[: len(pairs)]


def _adopt_records(
    tx: compat.Tracer, branch: Branch, merger: Merger
) -> tuple[list[tuple[Draft, bool, Build]], bool]:
    """Plan what the records of both arms hold; return also whether any is computed later."""
    records, deferred = [], []
    for taken, arm in zip((True, False), branch.arms, strict=True):
        if not arm.records:
            continue
        (hazards,) = hazards_of_arms(tx, (arm,))
        late = lazy_output.inputs_of_records(tx, branch.site, merger, arm, hazards)
        for draft, inputs in zip(arm.records, late, strict=True):
            records.append((draft, taken, _adopt_record(merger, draft, taken, inputs)))
        if any(inputs is not None for inputs in late):
            deferred.append((arm, hazards))
    for arm, hazards in deferred:
        lazy_output.take_out_unread(arm, hazards, merger.pairs)
    return records, bool(deferred)


def _adopt_record(merger: Merger, draft: Draft, taken: bool, late: Value | None) -> Build:
    """Plan condition and inputs of a record; nothing of ``late`` inputs is merged."""
    inner = [] if draft.predicate is None else [draft.predicate]
    if late is None:
        return merger.adopt(compat.TupleVariable([*inner, draft.inputs]), then_side=taken)
    conditions = [merger.adopt(each, then_side=taken) for each in inner]
    return lambda merged: compat.TupleVariable([*(each(merged) for each in conditions), late])


def append_under(
    tx: compat.Tracer, predicate: TensorValue, draft: Draft, taken: bool, values: Any
) -> None:
    """Append a record of an arm to the enclosing list, under the arm's side of the condition."""
    condition = predicate if taken else predicates.negated(tx, predicate)
    *inner, inputs = values.items
    if inner:
        condition = predicates.both(tx, condition, inner[0])
    record_builder.append(tx, replace(draft, predicate=condition, inputs=inputs))


def _watch_aliases(
    tx: compat.Tracer, branch: Branch, pairs: Sequence[Pair], merged: Sequence[Value]
) -> None:
    """Watch for later in-place changes of merged tensors that in eager are older tensors."""
    give_up_form = partial(branch.site.aliased.add, branch.form)
    for pair, result in zip(pairs, merged, strict=True):
        for value, arm in zip((pair.then_value, pair.else_value), branch.arms, strict=True):
            if value is None or pair.is_number:
                continue
            outer = _outer_tensor_of(value, arm)
            if outer is not None:
                assert isinstance(result, compat.TensorVariable)
                watches.add(tx, example_of(result), give_up_form)
                watches.add(tx, outer, give_up_form)


def _outer_tensor_of(value: TensorValue, arm: ArmTrace) -> torch.Tensor | None:
    """Return the tensor of the main trace that ``value`` is, or is a view of."""
    example = example_of(value)
    if value.as_proxy().node.graph is not arm.graph:
        return example
    lifted = undo_log.examples_of(outer.node for outer in arm.lifted)
    return next((each for each in lifted if storage_of(each) == storage_of(example)), None)
