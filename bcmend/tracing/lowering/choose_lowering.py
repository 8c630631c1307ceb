"""Decide whether a traced branch may be lowered, and by which operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bcmend.dynamo import compat
from bcmend.dynamo.values import example_of, fake_mode_of, has_own_operators
from bcmend.tracing.effects.hazards import Hazards, hazards_of
from bcmend.tracing.lowering import arm_graphs, functional_rng, hoist_random
from bcmend.tracing.lowering.cost_model import Choice, weigh
from bcmend.tracing.merging import in_place
from bcmend.tracing.merging.in_place import InPlace
from bcmend.tracing.merging.merge import Pair
from bcmend.tracing.sites.refusal import Refusal, attempt
from bcmend.tracing.sites.site_table import LiveSite
from bcmend.tracing.speculation import iterators
from bcmend.tracing.speculation.arms import ArmTrace

Arms = tuple[ArmTrace, ArmTrace]


def choose(
    tx: compat.Tracer, site: LiveSite, arms: Arms, pairs: Sequence[Pair], *, returns: bool
) -> tuple[Choice, list[InPlace]]:
    """Choose the operator, and the tensors whose in-place changes are taken out of the arms.

    ``pairs`` are the tensors that the arms leave.

    Raises:
        Refusal: neither lowering is right.
    """
    require_merged(arms)
    consumed = [each for arm in arms for each in arm.effects.consumed]
    left = [arm.left for arm in arms]
    if not iterators.end_here(tx, consumed, left, returns=returns):
        raise Refusal("consumes-iterator", "it can be seen later how far an iterator has come")
    taken = [(arm.effects.consumed, arm.effects.left_open) for arm in arms]
    if not iterators.close_in_arms(tx, taken):
        raise Refusal("consumes-iterator", "a generator is left in a try or with")
    gradients = arm_graphs.gradients_flow(*arms) or any(
        functional_rng.is_read_in(arm.graph) for arm in arms
    )
    hazards = _hazards_without_draws(tx, arms) if gradients else hazards_of_arms(tx, arms)
    tensors = in_place.plan_in_place(tx, arms, hazards)
    choice = weigh(
        site.policy.branch,
        hazards,
        gradients,
        bool(pairs or tensors),
        _only_by_where(arms, pairs, gradients=gradients),
        traces_backwards=compat.compiled_autograd.compiled_autograd_enabled,
    )
    return choice, tensors


def _only_by_where(arms: Arms, pairs: Sequence[Pair], *, gradients: bool) -> str:
    """Return what ``torch.cond`` cannot do that a branch needs; empty if there is nothing."""
    if arm_graphs.leave_sizes_of_their_own(arms, [side for each in pairs for side in each.values]):
        return "torch.cond returns no tensor of a size that an arm alone knows"
    values = [example_of(side) for each in pairs if not each.is_number for side in each.values]
    if any(map(arm_graphs.have_own_operators, arms)) or any(map(has_own_operators, values)):
        return f"torch.cond cannot take {arm_graphs.OWN_OPERATORS}"
    missing = arm_graphs.without_backward(*arms) if gradients else ""
    return missing and f"torch.cond has no backward of {missing}"


def require_merged(arms: Arms) -> None:
    """Raise ``Refusal`` if an arm did something that no rule merges."""
    for arm in arms:
        if arm.effects.other is not None:
            raise Refusal(*arm.effects.other)


def _hazards_without_draws(tx: compat.Tracer, arms: Arms) -> list[Hazards]:
    """Take random operators out of the arms, if possible; return the hazards of what is left."""
    hazards = hazards_of_arms(tx, arms)
    if not any(each.random for each in hazards):
        return hazards
    refusal = attempt(lambda: hoist_random.move_draws_before(tx, arms))
    if isinstance(refusal, Refusal) and isinstance(
        attempt(lambda: functional_rng.make_draws_functional(tx, arms)), Refusal
    ):
        return [replace(each, random=refusal.detail) for each in hazards]
    return hazards_of_arms(tx, arms)


def hazards_of_arms(tx: compat.Tracer, arms: Sequence[ArmTrace]) -> list[Hazards]:
    modules = tx.output.nn_modules
    return [hazards_of(arm.graph.nodes, fake_mode_of(tx), modules, arm.asserted) for arm in arms]
