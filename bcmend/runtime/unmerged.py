"""Live-outs that have no common form and that, as it turns out, nobody reads.

What is live after a branch is known from bytecode alone, which has to take every later jump for
possible. While tracing most of those jumps are decided, and a value that only the untaken ones read
needs no form. ``Unmerged`` stands in its place. Whatever asks it anything makes Dynamo trace the
frame again, with the site told to merge all its live-outs or none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from torch._dynamo.variables import TupleVariable
from torch._dynamo.variables.base import VariableTracker

from bcmend.runtime.merge import Build, CannotMerge, Merger
from bcmend.runtime.sites import LiveSite
from bcmend.runtime.watches import SiteChanged

__all__ = ["merge_live_outs"]

#: What Dynamo does to any value that it only moves from place to place.
_MOVING: Final = frozenset(
    """
    clone is_realized realize set_name_hint set_source_location unwrap visit
    """.split()
)


class Unmerged(VariableTracker):
    """A value that is one thing after one arm and another after the other."""

    def __init__(self, site: LiveSite, **more: Any) -> None:
        super().__init__(**more)
        self.site = site

    def ask(self) -> None:
        """Have the frame traced again without values like this one."""
        self.site.merge_all = True
        raise SiteChanged(restart_reason=f"bcmend: {self.site.key} has to merge every live-out")


def _asking(name: str) -> Callable[..., None]:
    def method(self: Unmerged, *arguments: Any, **keywords: Any) -> None:
        self.ask()

    method.__name__ = name
    return method


for _name, _method in vars(VariableTracker).items():
    if callable(_method) and not _name.startswith("_") and _name not in _MOVING:
        setattr(Unmerged, _name, _asking(_name))


def merge_live_outs(
    site: LiveSite, merger: Merger, one: VariableTracker, other: VariableTracker
) -> Build:
    """Plan the live-outs, a tuple. Raises ``CannotMerge`` where the site has to merge them all."""
    if not (type(one) is type(other) is TupleVariable) or site.merge_all:
        return merger.merge(one, other)
    parts = [
        _merge_if_possible(site, merger, left, right)
        for left, right in zip(one.items, other.items, strict=True)
    ]
    return lambda merged: TupleVariable([part(merged) for part in parts])


def _merge_if_possible(
    site: LiveSite, merger: Merger, one: VariableTracker, other: VariableTracker
) -> Build:
    known = len(merger.pairs)
    try:
        return merger.merge(one, other)
    except CannotMerge:
        del merger.pairs[known:]
        value = Unmerged(site)
        return lambda merged: value
