"""Decide whether the records of a trace run inside the graph or after it.

All records of a frame have one order, so either all statements run inside the graph or all are
deferred. A trace that needs the other way restarts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NoReturn

from bcmend.dynamo import compat
from bcmend.dynamo.slots import Slot
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.search.falsified import falsify
from bcmend.tracing.sites import body_states
from bcmend.tracing.sites.site_table import LiveSite

INLINE: Final = "inline"


@dataclass(slots=True, eq=False)
class Timing:
    """Which records of statements one trace has so far, and whether its graph writes something."""

    has_inline: bool = False
    has_deferred: bool = False
    has_side_exits: bool = False
    writes: bool = False


_TIMING: Final = Slot(Timing, rolls_back=False)


def of(output: compat.OutputGraph) -> Timing:
    """Return the timing of a trace."""
    return _TIMING.of(output)


def _state(output: compat.OutputGraph) -> body_states.BodyState:
    return body_states.state_of(output.root_tx.f_code)


def is_asked_for(site: LiveSite, *, raises: bool) -> bool:
    """Return whether the policy asks for records of a site to run at their place."""
    return (site.policy.guards if raises else site.policy.output) == INLINE


def is_wanted(tx: compat.Tracer, site: LiveSite, *, raises: bool) -> bool:
    """Return whether a record of ``site`` that is made now is to run inside the graph."""
    state = _state(tx.output)
    is_inline = not state.holds(Claim.DEFERRED) or of(tx.output).has_inline
    return state.holds(Claim.IN_GRAPH) and (is_inline or is_asked_for(site, raises=raises))


def must_wait(output: compat.OutputGraph) -> NoReturn:
    """Restart the trace with all records deferred."""
    falsify(Finding(Claim.IN_GRAPH, _state(output)))


def require_none_deferred(tx: compat.Tracer) -> None:
    """Restart the trace with all records inside the graph, if one is deferred by now."""
    if of(tx.output).has_deferred:
        falsify(Finding(Claim.DEFERRED, _state(tx.output)))
