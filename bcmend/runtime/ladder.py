"""Mend one branch: trace both arms, take the first lowering that is equal to eager, or none.

Reads the site, the condition, the two arms and their live-ins as Dynamo models them; returns the
live-outs after the branch, or ``None``, in which case the original jump follows. The lowerings and
the order in which they are tried:

- nothing: the arms change nothing that is seen later;
- guard: one arm raised while it was traced; a record raises for it after the graph, or, where it
  is not certain that eager execution raises too, the call is made again in plain Python;
- where: both arms run; only where neither can fail on the data, draws random numbers (all later
  ones would be others than in eager), or is dear;
- cond: the taken arm runs; never where an arm draws random numbers and gradients flow, since the
  backward of ``torch.cond`` draws them again.

Where gradients flow, what the arms draw is taken out of them first (``draws``). What cannot be is
left alone, unless the policy asks for where: then both sides draw.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._dynamo import exc
from torch._dynamo.current_scope_id import enter_new_scope
from torch._dynamo.variables import ListVariable, TensorVariable, TupleVariable
from torch._dynamo.variables.base import ValueMutationNew, VariableTracker

from bcmend.rewrite.plan import SPLIT
from bcmend.runtime import (
    asserted,
    depth,
    draws,
    generator_states,
    guards,
    in_place,
    inline,
    iterators,
    known_tensors,
    loops,
    lower,
    moments,
    output_arms,
    repeats,
    scalars,
    sinks,
    sites,
    sizes,
    watches,
)
from bcmend.runtime.arms import Arm, ArmFailure, ArmTrace, trace_arm
from bcmend.runtime.changes import apply_changes, plan_changes
from bcmend.runtime.in_place import InPlace
from bcmend.runtime.merge import Build, CannotMerge, Merger, Pair, example_of
from bcmend.runtime.opened import PlannedOpening
from bcmend.runtime.operations import Hazards, hazards_of, storage_of
from bcmend.runtime.per_trace import kept
from bcmend.runtime.sinks import Draft
from bcmend.runtime.sites import LiveSite
from bcmend.runtime.unmerged import has_choice, merge_live_outs
from bcmend.runtime.weigh import Choice, weigh

__all__ = ["mend_branch"]


@dataclass(frozen=True, slots=True)
class Branch:
    """The two traced arms of one branch and the condition between them."""

    site: LiveSite
    target: Any
    predicate: TensorVariable
    then_arm: ArmTrace
    else_arm: ArmTrace
    form: int

    @property
    def arms(self) -> tuple[ArmTrace, ArmTrace]:
        return self.then_arm, self.else_arm

    @property
    def results(self) -> tuple[VariableTracker, VariableTracker]:
        return self.then_arm.result, self.else_arm.result

    @property
    def returns(self) -> bool:
        return self.site.returning[self.form]


def mend_branch(
    tx: Any,
    target: Any,
    site: LiveSite,
    form: int,
    condition: VariableTracker,
    arms: tuple[Arm, Arm],
) -> VariableTracker | None:
    """Return the live-outs of the branch, a tuple; ``None`` where the jump has to stay."""
    if form and not site.is_worth_widening:
        return None
    guards = tx.output.guards
    before, dropped = copy.copy(guards.inner), kept(tx.output, "dropped_guards", set)
    with depth.inside(tx, site):
        outcome = _mend(tx, target, site, form, condition, arms)
    if outcome is None:
        # The trace ends at the jump, unless another form is mended. What only the arms looked at
        # must not make it compile again.
        dropped.update(guards.inner - before)
        guards.inner = before
    else:
        guards.update(dropped)  # Dynamo makes a guard once, when it first looks at something
        dropped.clear()
        repeats.note(tx)  # what fails inside a graph that stock has not made
    return outcome


def _mend(
    tx: Any,
    target: Any,
    site: LiveSite,
    form: int,
    condition: VariableTracker,
    arms: tuple[Arm, Arm],
) -> VariableTracker | None:
    if form in site.aliased:
        site.refuse("alias-changed", "a value of the branch is changed in place later")
        return None
    if iterators.hold_an_open_generator(arms[0].arguments, tx.output.side_effects):
        site.refuse("consumes-iterator", "a generator that stands in a block cannot be taken back")
        return None
    known = _known_truth(tx, site, condition)
    if known is not None:
        return (arms[0] if known else arms[1]).call(tx)
    if site.place is not None and not form:
        loops.at_the_jump(tx, site, condition, arms[0].inputs)
    if site.place is not None and not form and depth.times(tx, site) <= loops.TRIED_AT_MOST:
        end = loops.run_loop(tx, target, site, condition, arms)
        if end is not None:
            return _behind_the_loop(tx, target, site, end, arms)
    return _branch(tx, target, site, form, condition, arms)


def _known_truth(tx: Any, site: LiveSite, condition: VariableTracker) -> bool | None:
    """Return the truth of a tensor of which it is known what it holds.

    At the jump of a loop only where torch knows: in later turns the data mostly decide.
    """
    if type(condition) is not TensorVariable:
        return None
    known = getattr(example_of(condition), "constant", None)
    if known is None and site.place is None:
        known = known_tensors.number_in(tx, condition)
    return None if known is None else bool(known)


def _branch(
    tx: Any,
    target: Any,
    site: LiveSite,
    form: int,
    condition: VariableTracker,
    arms: tuple[Arm, Arm],
) -> VariableTracker | None:
    sites.forget_refusal()
    with iterators.ending(tx, returns=site.returning[form]):
        then_arm, else_arm = (
            _trace(tx, target, condition, arm, truth)
            for arm, truth in zip(arms, (True, False), strict=True)
        )
    if isinstance(then_arm, ArmFailure) or isinstance(else_arm, ArmFailure):
        return guards.defer_raising_arm(tx, site, condition, arms, (then_arm, else_arm))
    predicate = guards.predicate_of(tx, site, condition)
    branch = Branch(site, target, predicate, then_arm, else_arm, form)
    try:
        return _lower(tx, branch)
    except CannotMerge as reason:
        _give_up(branch, "arms-differ", str(reason))
    except (exc.RestartAnalysis, exc.SkipFrame):
        raise
    except exc.TorchDynamoException as error:
        _give_up(branch, "arm-untraceable", str(error).strip().splitlines()[0])
    return None


def _trace(
    tx: Any, target: Any, condition: VariableTracker, arm: Arm, truth: bool
) -> ArmTrace | ArmFailure:
    with sizes.holding(tx, condition, truth):
        return trace_arm(tx, target, arm, lambda: sinks.open_arm(tx))


def _behind_the_loop(
    tx: Any, target: Any, site: LiveSite, end: loops.LoopEnd, arms: tuple[Arm, Arm]
) -> VariableTracker | None:
    """Go on where a loop was left."""
    one, other = (arm.with_inputs(end.inputs.items) for arm in arms)
    if end.by_exhaustion:
        outcome = _branch(tx, target, site, 0, end.predicate, (one, other))
    else:
        outcome = (one, other)[end.leaving].call(tx)
    if outcome is not None:
        site.mended("while_loop", "the number of turns depends on a tensor")
    return outcome


def _give_up(branch: Branch, slug: str, detail: str) -> None:
    """Refuse the site; where its random numbers may be drawn by now, trace again without it."""
    if any(arm.draws or arm.states for arm in branch.arms):
        branch.site.withdraw(slug, detail)
        raise watches.SiteChanged(restart_reason=f"bcmend: {branch.site.key} withdrawn")
    branch.site.refuse(slug, detail)


def _lower(tx: Any, branch: Branch) -> VariableTracker | None:
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
    build_result = merge_live_outs(
        tx, branch.site, branch.form, branch.predicate, merger, branch.results
    )
    changes = plan_changes(tx, branch.site, merger, branch.arms, branch.form)
    records, is_waiting = _adopt_records(tx, branch, merger)
    _require_gradients_stay(merger.pairs)
    chosen = _choose(tx, branch, bool(merger.pairs))
    if chosen is None:
        return None
    choice, tensors = chosen
    how = choice.how
    merged = _write_lowering(tx, branch, how, merger.pairs, tensors)
    if how == "where":  # in a cond the operations say it where they are made
        asserted.again(tx, [each for arm in branch.arms for each in arm.asserted])
    if how == "where" and not (merger.pairs or tensors):
        how = "nothing to merge"
        lower.keep_draws(tx, branch.predicate)
    _watch_aliases(tx, branch, merger.pairs, merged)
    opened = [change.variable for change in changes if isinstance(change, PlannedOpening)]
    moments.require_closed(tx, {draft.site for draft, _, _ in records}, opened)
    apply_changes(tx, branch.site, branch.predicate, changes, merged, merger.belongs)
    for draft, taken, build in records:
        _append_under(tx, branch.predicate, draft, taken, build(merged))
    result = build_result(merged)
    how = _described(branch, how, is_chosen_later=has_choice(result))
    has_effects = bool(changes or records or tensors)
    why = choice.why
    if is_waiting:
        why = f"{why}; what only output reads is computed if the arm is taken"
    branch.site.mended(f"{how} with effects" if has_effects else how, why)
    return result


def _with_lists_of_its_own(tx: Any, branch: Branch) -> Branch:
    """Give each side a list of its own in place of one that both have changed and return.

    Nobody can tell where the frame alone has had the list, and ends with the branch.
    """
    after = [
        {id(change.variable): change for change in arm.effects.containers if not change.is_open}
        for arm in branch.arms
    ]
    own = {
        key: change
        for changes in after
        for key, change in changes.items()
        if type(change.variable) is ListVariable
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
                with enter_new_scope():  # as if the arm had made it
                    kind = ValueMutationNew()
                items[position] = ListVariable(list(state["items"]), mutation_type=kind)
        arms.append(replace(arm, result=TupleVariable(items)))
    return replace(branch, then_arm=arms[0], else_arm=arms[1])


def _described(branch: Branch, how: str, *, is_chosen_later: bool) -> str:
    is_split = branch.site.kind == SPLIT
    if branch.form or is_split:
        how = f"split by {how}"
    return f"choice by {how}" if is_chosen_later and not is_split else how


def _require_gradients_stay(pairs: Sequence[Pair]) -> None:
    """Raise ``CannotMerge`` for an older tensor with gradients, where none are recorded."""
    if torch.is_grad_enabled():
        return
    for pair in pairs:
        values = [value for value in (pair.then_value, pair.else_value) if value is not None]
        if not pair.is_number and any(example_of(value).requires_grad for value in values):
            raise CannotMerge("a tensor that requires gradients, where none are recorded")


def _write_lowering(
    tx: Any, branch: Branch, how: str, pairs: Sequence[Pair], tensors: Sequence[InPlace]
) -> list[VariableTracker]:
    """Write the branch into the graph, and the changes in place after it."""
    operation = {"where": lower.by_where, "cond": lower.by_cond}[how]
    changed = [each.outer for each in tensors]
    arms = draws.drawn_before(tx, branch.predicate, branch.arms)
    arms, states = generator_states.entered(tx, arms)
    wanted = [*pairs, *(each.pair for each in tensors), *states]
    values = operation(tx, branch.predicate, *arms, wanted, changed)
    if states:
        generator_states.leave(tx, values.pop())
    in_place.write_back(tx, tensors, values[len(pairs) :])
    return values[: len(pairs)]


def _adopt_records(
    tx: Any, branch: Branch, merger: Merger
) -> tuple[list[tuple[Draft, bool, Build]], bool]:
    """Plan what the records of both arms hold in the main trace, and on which side each is made.

    Says whether any holds values that are computed when it is delivered.
    """
    records, waiting = [], []
    for taken, arm in ((True, branch.then_arm), (False, branch.else_arm)):
        if not arm.records:
            continue
        (hazards,) = _hazards(tx, (arm,))
        late = output_arms.inputs_of_records(tx, branch.site, merger, arm, hazards)
        for draft, inputs in zip(arm.records, late, strict=True):
            records.append((draft, taken, _adopt_record(merger, draft, taken, inputs)))
        if any(inputs is not None for inputs in late):
            waiting.append((arm, hazards))
    for arm, hazards in waiting:
        output_arms.take_out_unread(arm, hazards, merger.pairs)
    return records, bool(waiting)


def _adopt_record(merger: Merger, draft: Draft, taken: bool, late: VariableTracker | None) -> Build:
    """Plan condition and inputs of a record; ``late`` are inputs of which nothing is merged."""
    inner = [] if draft.predicate is None else [draft.predicate]
    if late is None:
        return merger.adopt(TupleVariable([*inner, draft.inputs]), then_side=taken)
    conditions = [merger.adopt(each, then_side=taken) for each in inner]
    return lambda merged: TupleVariable([*(each(merged) for each in conditions), late])


def _append_under(
    tx: Any, predicate: TensorVariable, draft: Draft, taken: bool, values: Any
) -> None:
    """Append a record of an arm to the enclosing list, under the arm's side of the condition."""
    condition = predicate if taken else lower.negated(tx, predicate)
    *inner, inputs = values.items
    if inner:
        condition = lower.both(tx, condition, inner[0])
    sinks.append(tx, replace(draft, predicate=condition, inputs=inputs))


def _choose(tx: Any, branch: Branch, has_results: bool) -> tuple[Choice, list[InPlace]] | None:
    """Choose "where" or "cond", and the tensors whose changes in place are taken out of the arms.

    Note the refusal and return ``None`` where neither lowering is right.
    """
    site = branch.site
    consumed = [each for arm in branch.arms for each in arm.effects.consumed]
    if not iterators.end_here(tx, consumed, branch.results, returns=branch.returns):
        site.refuse("consumes-iterator", "it can be seen later how far an iterator has come")
        return None
    if any(arm.effects.other for arm in branch.arms):
        site.refuse("arm-effects", next(a.effects.other for a in branch.arms if a.effects.other))
        return None
    gradients = lower.gradients_flow(*branch.arms) or any(
        generator_states.are_read_in(arm.graph) for arm in branch.arms
    )
    hazards = _hazards_without_draws(tx, branch) if gradients else _hazards(tx, branch.arms)
    _require_order(tx, branch, hazards)
    try:
        tensors = in_place.plan_in_place(tx, branch.arms, hazards)
    except in_place.CannotSettle as problem:
        site.refuse("arm-effects", str(problem))
        return None
    _require_checks_first(tx, branch, tensors, hazards)
    choice, refusal = weigh(site.branch, hazards, gradients, has_results or bool(tensors))
    if refusal is not None:
        site.refuse(*refusal)
    return None if choice is None else (choice, tensors)


def _require_order(tx: Any, branch: Branch, hazards: Sequence[Hazards]) -> None:
    """Defer all records if one of an arm, which runs behind the branch, came behind a failure."""
    for arm, hazard in zip(branch.arms, hazards, strict=True):
        if hazard.partial and _run_inside(tx, arm):
            inline.must_wait(tx.output)


def _require_checks_first(
    tx: Any, branch: Branch, tensors: Sequence[InPlace], hazards: Sequence[Hazards]
) -> None:
    """Defer all records if there is a check in an arm that also changes something, or draws.

    It would run behind the branch, where the changes have been made known.
    """
    changes = (arm.effects.attributes or arm.effects.containers for arm in branch.arms)
    draws_numbers = any(each.random for each in hazards) or any(
        arm.draws or arm.states for arm in branch.arms
    )
    if not tensors and not draws_numbers and not any(changes):
        return
    if any(draft.raises for arm in branch.arms for draft in _run_inside(tx, arm)):
        inline.must_wait(tx.output)


def _run_inside(tx: Any, arm: ArmTrace) -> list[Draft]:
    """Return the records of an arm that stand for statements and are to run inside the graph."""
    statements = (draft for draft in arm.records if draft.is_statement)
    return [each for each in statements if inline.is_wanted(tx, each.site, raises=each.raises)]


def _hazards(tx: Any, arms: Sequence[ArmTrace]) -> list[Hazards]:
    modules = tx.output.nn_modules
    return [hazards_of(arm.graph.nodes, tx.fake_mode, modules, arm.asserted) for arm in arms]


def _hazards_without_draws(tx: Any, branch: Branch) -> list[Hazards]:
    """Take random draws out of the arms, if there are any; return the hazards of what is left."""
    hazards = _hazards(tx, branch.arms)
    if not any(each.random for each in hazards):
        return hazards
    stays = draws.take_out(tx, branch.arms)
    if stays and not generator_states.take_out(tx, branch.arms):
        stays = ""
    if not stays:
        return _hazards(tx, branch.arms)
    return [replace(each, random=stays) for each in hazards]


def _watch_aliases(
    tx: Any, branch: Branch, pairs: Sequence[Pair], merged: Sequence[VariableTracker]
) -> None:
    """A merged tensor is a new one. Where eager has an old one, no later change may show that."""
    site = branch.site

    def give_up_form() -> None:
        site.aliased.add(branch.form)

    for pair, result in zip(pairs, merged, strict=True):
        for value, arm in ((pair.then_value, branch.then_arm), (pair.else_value, branch.else_arm)):
            if value is None or pair.is_number:
                continue
            outer = _outer_tensor_of(value, arm)
            if outer is not None:
                assert isinstance(result, TensorVariable)
                watches.add(tx, example_of(result), give_up_form)
                watches.add(tx, outer, give_up_form)


def _outer_tensor_of(value: TensorVariable, arm: ArmTrace) -> torch.Tensor | None:
    """Return the tensor of the main trace that ``value`` is, or is a view of."""
    example = example_of(value)
    if value.as_proxy().node.graph is not arm.graph:
        return example
    storage = storage_of(example)
    for outer in arm.lifted:
        other = outer.node.meta.get("example_value")
        if isinstance(other, torch.Tensor) and storage_of(other) == storage:
            return other
    return None
