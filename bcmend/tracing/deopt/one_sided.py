"""Branches of which a graph has one side: which can be, and which calls leave such graphs.

``search/sides`` says which side that is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import CodeType
from typing import Final

from bcmend.dynamo import compat, frames
from bcmend.dynamo.slots import Slot
from bcmend.names import SPLIT
from bcmend.rewrite.sites.plan import BranchLowering, TruthLowering
from bcmend.tracing.deopt import rerun_policy
from bcmend.tracing.search import sides
from bcmend.tracing.sites import body_states, nesting_limits, site_table
from bcmend.tracing.sites.session import SESSION
from bcmend.tracing.sites.site_table import LiveSite

#: Turns of a loop with one side of its jump: each takes Python frames, as a nested branch does.
TURNS_AT_MOST: Final = 32

_WHY: Final = (
    "the graph has the side where the condition is {}{}; calls that take the other are made in "
    "plain Python"
)


def is_eligible(tx: compat.Tracer, site: LiveSite) -> bool:
    """Return whether a graph may have one side of a branch, if the frame can have side exits."""
    decision = None if site.plan is None else site.plan.decision
    is_branch = isinstance(decision, (BranchLowering, TruthLowering))
    is_few = site.place is None or _TURNS.of(tx.output)[site.key] < TURNS_AT_MOST
    return bool(tx.one_graph) and is_branch and site.kind != SPLIT and is_few


#: How often a trace has taken one side of a branch. The jump of a loop may have no end: if that is
#: too often, the trace stops there, and graphs take the other side.
_TURNS: Final[Slot[Counter[str]]] = Slot(Counter, rolls_back=False)


def note_refused(tx: compat.Tracer, site: LiveSite) -> None:
    """Note that the trace, or that of an arm, is going to stop at a branch that could be left."""
    site.outcome.has_exit = True
    is_in_an_arm = nesting_limits.is_in_an_arm(tx)
    body_states.state_of(tx.output.root_tx.f_code).sides.refused.append((site, is_in_an_arm))


def note_decided(tx: compat.Tracer, site: LiveSite, truth: bool) -> None:
    """Note that a condition was computed in front of the graph: the trace may stop on that side."""
    body_states.state_of(tx.output.root_tx.f_code).sides.decided.append((site, truth))


def note_side(tx: compat.Tracer, site: LiveSite, side: bool) -> None:
    """Note that the trace goes on with one side of a branch."""
    _TURNS.of(tx.output)[site.key] += 1
    is_in_an_arm = nesting_limits.is_in_an_arm(tx)
    body_states.state_of(tx.output.root_tx.f_code).sides.taken.append((site, is_in_an_arm))
    site.exits = site.exits or sides.Exits()
    since = sides.why_turned(site)
    site.has_one_side(_WHY.format(str(side).lower(), since and f", since {since}"))


def count(keys: Sequence[str], taken: str | None) -> None:
    """Count a call that has come to side exits, and has left by ``taken``.

    It has not come to those behind that one. A branch keeps its side for good once a backward pass
    may make a call again: that must save the same tensors.
    """
    for key in dict.fromkeys(keys):
        site = site_table.find(key)
        if site is not None and site.exits is not None:
            site.exits.is_settled |= rerun_policy.may_be_computed_again()
            site.exits.note(is_left=key == taken)
        if key == taken:
            return


def turn(key: str, code: CodeType) -> None:
    """Have ``code`` compiled anew with the other side of a branch, where most calls take that."""
    site = site_table.find(key)
    if site is not None and site.exits is not None and site.exits.are_most:
        site.exits.is_settled, site.exits.is_captured = True, False
        if sides.turn(site):
            frames.forget(code, "bcmend takes the other side of a branch")


def is_possible_at(code: CodeType, line: int) -> bool:
    """Return whether a branch at a line was refused that could be left by a side exit."""
    return any(
        each.outcome.has_exit
        and each.plan is not None
        and each.plan.line == line
        and not each.may_have_one_side
        and site_table.code_with_site(each.key) is code
        for each in list(SESSION.sites.values())
    )
