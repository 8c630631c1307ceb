"""Output in code that is being exported: left out, with one warning for each export.

An exported program has no end of the call at which output could appear. Where Dynamo traces it, the
warning comes when the trace is complete. Where it is exported without Dynamo, which is what
``torch.export`` does by default, its code runs in plain Python, on fake tensors of which no text
could be made: the warning names what is left out first.
"""

from __future__ import annotations

import warnings
import weakref
from typing import Any, Final

import torch
from torch._guards import TracingContext

from bcmend import outputs
from bcmend.errors import OutputDropped
from bcmend.names import EXPORTING
from bcmend.runtime import sites
from bcmend.runtime.per_trace import at_the_end, kept
from bcmend.runtime.sites import LiveSite

__all__ = ["drop", "drop_plainly", "is_left_out"]

_WHY: Final = "an exported program has no end of the call"


def drop(tx: Any, site: LiveSite) -> None:
    """Leave an output statement out, and have that said when the trace is complete."""
    site.mended("dropped", _WHY)
    dropped: list[LiveSite] = kept(tx.output, "dropped", list)
    if not dropped:
        at_the_end(tx.output, lambda: _warn(dropped))
    if site not in dropped:
        dropped.append(site)


def _warn(dropped: list[LiveSite]) -> None:
    places = ", ".join(site.key for site in dropped)
    warnings.warn(
        f"an exported program writes no output; left out: {places}", OutputDropped, stacklevel=2
    )


# Without Dynamo


def is_left_out(key: str, question: tuple[Any, ...]) -> bool:
    """Whether a statement that is about to run in plain Python is output of an exported program.

    ``question`` is what ``recording`` is given beside the key: see ``rewrite.plan.Callee``.
    """
    if not getattr(torch.compiler, EXPORTING, False):
        return False
    site = sites.find(key)
    if site is None or not site.active or site.output == "keep":
        return False
    if not question:
        return True
    callee, method, *_, is_dropped = question
    known = outputs.of_method(callee, method) if method else outputs.of_callable(callee)
    return known is not None and (known.returns_none or is_dropped)


#: The exports in which somebody was warned; one has a context of its own.
_WARNED: Final[weakref.WeakSet[TracingContext]] = weakref.WeakSet()


def drop_plainly(key: str) -> bool:
    """Leave an output statement out where a program is being exported; say whether it is."""
    if not getattr(torch.compiler, EXPORTING, False):
        return False
    site = sites.find(key)
    if site is not None:
        site.mended("dropped", _WHY)
    context = TracingContext.try_get()
    if context is None or context not in _WARNED:
        message = f"an exported program writes no output; the first that is left out: {key}"
        warnings.warn(message, OutputDropped, stacklevel=3)
    if context is not None:
        _WARNED.add(context)
    return True
