"""Standard streams that a call replaces while it runs.

``print`` writes to what ``sys.stdout`` is at the moment of the call. Dynamo replays a store to it
when the graph has run, and a record is delivered after that; so where a trace stores to one, its
output is left alone.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from bcmend.runtime.endings import at_end
from bcmend.runtime.per_trace import kept
from bcmend.runtime.sites import LiveSite
from bcmend.runtime.watches import SiteChanged

__all__ = ["watch"]

_STREAMS: Final = frozenset(["stdout", "stderr"])


def watch(tx: Any, site: LiveSite) -> None:
    """Have an output statement left alone if the trace turns out to replace a standard stream."""
    output = tx.output
    found: list[LiveSite] = kept(output, "writing_sites", list)
    if not found:
        at_end(output, lambda: _check(output.side_effects, found))
    found.append(site)


def _check(effects: Any, writing: list[LiveSite]) -> None:
    replaced = {
        name
        for owner, stored in effects.store_attr_mutations.items()
        if getattr(owner, "value", None) is sys
        for name in _STREAMS.intersection(stored)
    }
    if not replaced:
        return
    for site in writing:
        site.withdraw("cannot-snapshot", f"sys.{min(replaced)} is replaced in the call")
    raise SiteChanged(restart_reason="bcmend: a standard stream is replaced")
