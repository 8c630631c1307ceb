"""Where a loop was left, and what it has left to the arm that is traced behind it."""

from __future__ import annotations

from dataclasses import dataclass

from bcmend.dynamo import compat
from bcmend.dynamo.models import containers, methods
from bcmend.dynamo.values import TensorValue, Value
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.search.falsified import falsify
from bcmend.tracing.sites import body_states
from bcmend.tracing.sites.site_table import LiveSite
from bcmend.tracing.speculation.arms import Arm


@dataclass(frozen=True, slots=True)
class LoopEnd:
    """The condition and the live-ins where a loop was left; which arm is the one that leaves.

    ``by_exhaustion`` says whether the loop may also have run out of items, its condition unmet; the
    other arm then finds the iterator exhausted.
    """

    predicate: TensorValue
    inputs: compat.TupleVariable
    leaving: int
    by_exhaustion: bool
    site: LiveSite

    def arms(self, arms: tuple[Arm, Arm]) -> list[Arm]:
        """Return the arms of the branch with what the loop has left them.

        How far a range was gone over is not known in the arm that leaves.
        """
        inputs = list(self.inputs.items)
        found = [arm.with_inputs(inputs) for arm in arms]
        left: list[Value] = [
            _LeftRange(self.site) if _is_at_its_end(each) else each for each in inputs
        ]
        found[self.leaving] = arms[self.leaving].with_inputs(left)
        return found


def _is_at_its_end(value: Value) -> bool:
    return isinstance(value, compat.RangeIteratorVariable) and containers.items_left(value) == 0


class _LeftRange(compat.RangeIteratorVariable):
    """An iterator over a range that a loop has gone over in part."""

    def __init__(self, site: LiveSite) -> None:
        super().__init__(0, 0, 1, 0)
        self.site = site

    @methods.implements(methods.ITERNEXT)
    def _next(self, tx: compat.Tracer) -> Value:
        body_states.join_exits(tx, self.site)
        falsify(Finding(Claim.LEFT, self.site))
