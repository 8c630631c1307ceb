"""The place where two arms meet, in a trace without any mended code."""

from __future__ import annotations

from typing import Any

from bcmend.tracing.merging.merge import Merger
from bcmend.tracing.merging.planned import Join
from bcmend.tracing.sites.site_table import LiveSite


def _code() -> None:
    """Stand for the function that has the site."""


def site(**more: Any) -> LiveSite:
    """Return a site of one form, whose arms do not return."""
    known: dict[str, Any] = {"inside": ((),), "returning": (False,), "flags": (frozenset(),)}
    return LiveSite("tests.site", "branch", _code.__code__, **{**known, **more})


def join_of(tx: Any, predicate: Any, *belonging: Any, **more: Any) -> Join:
    """Return the end of a branch of which the arms have made just `belonging`."""
    merger = Merger(
        lambda value: any(value is each for each in belonging), effects=tx.output.side_effects
    )
    return Join(tx, site(**more), 0, predicate, merger)


def join_of_arms(tx: Any, predicate: Any, *arms: Any, **more: Any) -> Join:
    """Return the end of a branch with traced arms."""
    graphs = [arm.graph for arm in arms]
    merger = Merger(
        lambda value: value.as_proxy().node.graph in graphs, effects=tx.output.side_effects
    )
    return Join(tx, site(**more), 0, predicate, merger)
