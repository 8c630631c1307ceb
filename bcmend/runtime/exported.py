"""Output in code that is being exported: left out, with one warning for each export.

An exported program has no end of the call at which output could appear.
"""

from __future__ import annotations

import warnings
from typing import Any

from bcmend.errors import OutputDropped
from bcmend.runtime.per_trace import kept
from bcmend.runtime.sites import LiveSite

__all__ = ["drop"]


def drop(tx: Any, site: LiveSite) -> None:
    """Leave an output statement out, and have that said when the trace is complete."""
    site.mended("dropped", "an exported program has no end of the call")
    dropped: list[LiveSite] = kept(tx.output, "dropped", list)
    if not dropped:
        tx.output.register_finalizer_fns.append(lambda module: _warn(dropped))
    if site not in dropped:
        dropped.append(site)


def _warn(dropped: list[LiveSite]) -> None:
    places = ", ".join(site.key for site in dropped)
    warnings.warn(
        f"an exported program writes no output; left out: {places}", OutputDropped, stacklevel=2
    )
