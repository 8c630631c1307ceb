"""What a turn of a loop changes, draws or leaves that its operator has, and what it has not."""

from __future__ import annotations

import torch
from torch.fx import Proxy

from bcmend.dynamo import compat
from bcmend.dynamo.values import fake_mode_of
from bcmend.tracing.effects.hazards import hazards_of
from bcmend.tracing.effects.operator_runs import storage_of
from bcmend.tracing.loops.loop_values import Carried
from bcmend.tracing.lowering import arm_graphs
from bcmend.tracing.merging import in_place
from bcmend.tracing.merging.in_place import InPlace
from bcmend.tracing.output import record_builder
from bcmend.tracing.sites.refusal import NotThisWay, Refusal, attempt
from bcmend.tracing.speculation.arms import ArmTrace


def side_exits(trace: ArmTrace) -> list[record_builder.Draft]:
    """Return the side exits of an iteration. Raises ``Refusal`` if it has other records."""
    for draft in trace.records:
        if not (draft.kind.is_exit and isinstance(draft.predicate, compat.TensorVariable)):
            raise NotThisWay("a turn writes output, makes a check or changes an object")
    return list(trace.records)


def changes_in_place(tx: compat.Tracer, trace: ArmTrace, carried: Carried) -> list[InPlace]:
    """Return the tensors changed in place. Raises ``Refusal`` if one cannot be."""
    effects = trace.effects
    if not effects.tensors:
        return []
    if carried.gradients and any(map(_may_have_gradients, effects.tensors)):
        raise NotThisWay("a turn changes a tensor in place while gradients are recorded")
    hazards = hazards_of(trace.graph.nodes, fake_mode_of(tx))
    changes = attempt(lambda: in_place.plan_in_place(tx, (trace, trace), [hazards, hazards]))
    if isinstance(changes, Refusal):
        raise NotThisWay(changes.detail)
    return changes


def _may_have_gradients(changed: Proxy) -> bool:
    example = changed.node.meta["example_value"]
    return bool(example.is_floating_point() or example.is_complex())


def require_pure(
    tx: compat.Tracer, trace: ArmTrace, entered: list[Proxy], changed: list[Proxy], gradients: bool
) -> None:
    """Raise ``Refusal`` for operators of a turn that the operator of a loop cannot have.

    Args:
        tx: what traces.
        trace: the turn.
        entered: what it is given.
        changed: the tensors of the main trace that it may change in place.
        gradients: whether any flow through it.
    """
    if arm_graphs.have_own_operators(trace):
        raise NotThisWay(f"a turn has {arm_graphs.OWN_OPERATORS}")
    # The iterations of an inner loop were judged when that loop was written.
    nodes = [n for n in trace.graph.nodes if n.target is not torch.ops.higher_order.while_loop]
    hazards = hazards_of(nodes, fake_mode_of(tx))
    from_outside = [proxy.node.meta["example_value"] for proxy in (*entered, *trace.lifted)]
    tensors = [each for each in from_outside if isinstance(each, torch.Tensor)]
    carried = {storage_of(each.node.meta["example_value"]) for each in changed}
    if any(storage_of(each) in hazards.writes - carried for each in tensors):
        raise NotThisWay("a turn changes a tensor in place")
    if gradients and hazards.random:
        raise NotThisWay("a turn draws random numbers while gradients are recorded")
    if gradients and hazards.partial:  # backward of the operator makes at least one iteration
        raise NotThisWay("a turn may fail on the data while gradients are recorded")
