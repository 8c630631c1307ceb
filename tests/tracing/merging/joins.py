"""The place where two arms meet, in a trace without any mended code."""

from __future__ import annotations

from typing import Any

from bcmend.policy import DEFAULT, Policy
from bcmend.rewrite.sites.plan import BranchLowering, Site
from bcmend.tracing.merging.merge import Join, Merger
from bcmend.tracing.sites.site_table import LiveSite


def _code() -> None:
    """Stand for the function that has the site."""


def site(*, returns: bool = False, policy: Policy = DEFAULT) -> LiveSite:
    """Return a site of one form."""
    nothing: frozenset[int] = frozenset()
    join = -1 if returns else 3
    form = BranchLowering(0, 1, 2, join, nothing, 0, 0, 0, None, (), (), (), (), nothing)
    plan = Site("tests.site", "branch", 0, None, 0, form, inside=((),))
    return LiveSite(plan.name, plan.kind, _code.__code__, policy, plan)


def join_of(tx: Any, predicate: Any, *belonging: Any, returns: bool = False) -> Join:
    """Return the end of a branch of which the arms have made just `belonging`."""
    merger = Merger(
        lambda value: any(value is each for each in belonging), effects=tx.output.side_effects
    )
    return Join(tx, site(returns=returns), 0, predicate, merger)


def join_of_arms(tx: Any, predicate: Any, *arms: Any) -> Join:
    """Return the end of a branch with traced arms."""
    graphs = [arm.graph for arm in arms]
    merger = Merger(
        lambda value: value.as_proxy().node.graph in graphs, effects=tx.output.side_effects
    )
    return Join(tx, site(), 0, predicate, merger)
