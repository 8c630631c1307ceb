"""Output in code that is being exported: left out, with one warning for each export.

An exported program has no end of the call at which output could appear. Where Dynamo traces it, the
warning comes when the trace is complete. ``torch.export`` runs the code in plain Python, on fake
tensors that have no text: there the warning names the first statement that is left out.
"""

from __future__ import annotations

import warnings
import weakref
from typing import Any, Final

import torch

from bcmend.dynamo import compat
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.trace_state import Phase, at_the_end
from bcmend.errors import OutputDropped
from bcmend.knowledge import output_callables
from bcmend.names import EXPORTING
from bcmend.tracing.sites import site_table
from bcmend.tracing.sites.site_table import LiveSite

_WHY: Final = "an exported program has no end of the call"

_DROPPED: Final[Slot[list[LiveSite]]] = Slot(list, rolls_back=True)


def drop(tx: compat.Tracer, site: LiveSite) -> None:
    """Leave an output statement out, and warn when the trace is complete."""
    site.mended("dropped", _WHY)
    dropped = _DROPPED.of(tx.output)
    if not dropped:
        at_the_end(tx.output, Phase.TELL, lambda module: _warn(dropped))
    if site not in dropped:
        dropped.append(site)


def _warn(dropped: list[LiveSite]) -> None:
    if not dropped:  # the arms with these statements were refused
        return
    places = ", ".join(site.key for site in dropped)
    warnings.warn(
        f"an exported program writes no output; left out: {places}", OutputDropped, stacklevel=2
    )


# Without Dynamo


def is_exported() -> bool:
    """Return whether ``torch.export`` runs the program in plain Python."""
    return bool(getattr(torch.compiler, EXPORTING, False))


def is_left_out(key: str, called: tuple[Any, ...]) -> bool:
    """Return whether a statement about to run in plain Python is output that an export leaves out.

    ``called`` is what ``recording`` is given of the callee (``rewrite.sites.plan.Callee``).
    """
    site = site_table.find(key)
    is_kept = site is None or not site.active or site.policy.output == "keep"
    return not is_kept and is_output(called)


def is_output(called: tuple[Any, ...]) -> bool:
    """Return whether a statement about to run in plain Python writes output."""
    if not called:
        return True
    callee, method, *_, is_dropped = called
    find = output_callables
    known = find.of_method(callee, method) if method else find.of_callable(callee)
    return known is not None and (known.returns_none or is_dropped)


#: The exports in which somebody was warned; one has a context of its own.
_WARNED: Final[weakref.WeakSet[compat.TracingContext]] = weakref.WeakSet()


def drop_plainly(key: str) -> bool:
    """Leave an output statement out if a program is being exported; return whether it is."""
    if not is_exported():
        return False
    site = site_table.find(key)
    if site is not None:
        site.mended("dropped", _WHY)
    context = compat.TracingContext.try_get()
    if context is None or context not in _WARNED:
        message = f"an exported program writes no output; the first that is left out: {key}"
        warnings.warn(message, OutputDropped, stacklevel=3)
    if context is not None:
        _WARNED.add(context)
    return True
