"""Decide whether a traced branch may be lowered, and by which operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bcmend.dynamo import compat
from bcmend.dynamo.values import fake_mode_of
from bcmend.tracing.deopt import record_timing
from bcmend.tracing.effects.hazards import Hazards, hazards_of
from bcmend.tracing.lowering import arm_graphs, functional_rng, hoist_random
from bcmend.tracing.lowering.cost_model import Choice, weigh
from bcmend.tracing.merging import in_place
from bcmend.tracing.merging.in_place import InPlace
from bcmend.tracing.output.record_builder import Draft
from bcmend.tracing.sites.refusal import Refusal, attempt
from bcmend.tracing.sites.site_table import LiveSite
from bcmend.tracing.speculation import iterators
from bcmend.tracing.speculation.arms import ArmTrace

Arms = tuple[ArmTrace, ArmTrace]


def choose(
    tx: compat.Tracer, site: LiveSite, arms: Arms, *, returns: bool, has_results: bool
) -> tuple[Choice, list[InPlace]]:
    """Choose "where" or "cond", and the tensors whose in-place changes are taken out of the arms.

    Raises ``Refusal`` where neither lowering is right.
    """
    require_merged(arms)
    consumed = [each for arm in arms for each in arm.effects.consumed]
    if not iterators.end_here(tx, consumed, [arm.result for arm in arms], returns=returns):
        raise Refusal("consumes-iterator", "it can be seen later how far an iterator has come")
    gradients = arm_graphs.gradients_flow(*arms) or any(
        functional_rng.is_read_in(arm.graph) for arm in arms
    )
    hazards = _hazards_without_draws(tx, arms) if gradients else hazards_of_arms(tx, arms)
    _require_order(tx, arms, hazards)
    tensors = in_place.plan_in_place(tx, arms, hazards)
    _require_checks_first(tx, arms, tensors, hazards)
    return weigh(site.policy.branch, hazards, gradients, has_results or bool(tensors)), tensors


def require_merged(arms: Arms) -> None:
    """Raise ``Refusal`` if an arm did something that no rule merges."""
    for arm in arms:
        if arm.effects.other is not None:
            raise Refusal(*arm.effects.other)


def _require_order(tx: compat.Tracer, arms: Arms, hazards: Sequence[Hazards]) -> None:
    """Defer all records if an arm that may fail has one that would run after the branch."""
    for arm, hazard in zip(arms, hazards, strict=True):
        if hazard.partial and _run_inside(tx, arm):
            record_timing.must_wait(tx.output)


def _require_checks_first(
    tx: compat.Tracer, arms: Arms, tensors: Sequence[InPlace], hazards: Sequence[Hazards]
) -> None:
    """Defer all records if a check of an arm would run after changes or draws of an arm."""
    changes = (arm.effects.attributes or arm.effects.containers for arm in arms)
    draws = (arm.draws or arm.states for arm in arms)
    is_pure = not (tensors or any(each.random for each in hazards) or any(draws) or any(changes))
    if not is_pure and any(draft.raises for arm in arms for draft in _run_inside(tx, arm)):
        record_timing.must_wait(tx.output)


def _run_inside(tx: compat.Tracer, arm: ArmTrace) -> list[Draft]:
    """Return the records of an arm for statements that run inside the graph."""
    statements = (draft for draft in arm.records if draft.is_statement)
    return [
        each for each in statements if record_timing.is_wanted(tx, each.site, raises=each.raises)
    ]


def _hazards_without_draws(tx: compat.Tracer, arms: Arms) -> list[Hazards]:
    """Take random operators out of the arms, if possible; return the hazards of what is left."""
    hazards = hazards_of_arms(tx, arms)
    if not any(each.random for each in hazards):
        return hazards
    refusal = attempt(lambda: hoist_random.take_out(tx, arms))
    if isinstance(refusal, Refusal) and isinstance(
        attempt(lambda: functional_rng.take_out(tx, arms)), Refusal
    ):
        return [replace(each, random=refusal.detail) for each in hazards]
    return hazards_of_arms(tx, arms)


def hazards_of_arms(tx: compat.Tracer, arms: Sequence[ArmTrace]) -> list[Hazards]:
    modules = tx.output.nn_modules
    return [hazards_of(arm.graph.nodes, fake_mode_of(tx), modules, arm.asserted) for arm in arms]
