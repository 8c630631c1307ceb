"""The conditions of the branches whose arms are being traced, the outermost first."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from bcmend.dynamo import compat, fx_graph
from bcmend.dynamo.slots import Slot, pushed
from bcmend.dynamo.values import TensorValue, Value
from bcmend.tracing.sites.site_table import LiveSite


@dataclass(frozen=True, slots=True)
class ArmCondition:
    """The condition of a branch, the truth for which its arm is taken, and its site.

    ``predicate`` is the condition in the graph around the arm, if what the arm selects is to have
    the size of what the other side leaves where the arm is not taken.
    """

    condition: Value
    truth: bool
    site: LiveSite
    predicate: TensorValue | None = None


_CONDITIONS: Final[Slot[list[ArmCondition]]] = Slot(list, rolls_back=False)


def on_side(tx: compat.Tracer, condition: ArmCondition) -> AbstractContextManager[None]:
    """Trace in a block the arm that is taken where a condition has a truth."""
    return pushed(_CONDITIONS.of(tx.output), condition)


def around(tx: compat.Tracer) -> Sequence[ArmCondition] | None:
    """Return the conditions under which the code being traced runs; ``None`` if it is in others.

    Such are the turn of a loop in the graph, and the body of another operator.
    """
    conditions = _CONDITIONS.of(tx.output)
    levels = sum(1 for each in fx_graph.tracers(tx) if each.parent is not None)
    return tuple(conditions) if levels == len(conditions) else None
