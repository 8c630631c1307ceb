"""What code that is being exported loses: output, and checks where it goes to ONNX.

An exported program has no end of the call at which output could appear. The warning comes when the
trace is complete, or when ``torch.export`` has run the code in plain Python, on fake tensors that
have no text.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

from bcmend.dynamo import compat
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.trace_state import Phase, at_the_end
from bcmend.errors import ChecksDropped, OutputDropped
from bcmend.knowledge import output_callables
from bcmend.names import EXPORTING
from bcmend.reports.places import shown_place
from bcmend.tracing.sites import site_table
from bcmend.tracing.sites.site_table import LiveSite

_WHY: Final = "an exported program has no end of the call"

_DROPPED: Final[Slot[list[LiveSite]]] = Slot(list, rolls_back=True)
_CHECKS: Final[Slot[list[LiveSite]]] = Slot(list, rolls_back=True)


def drop(tx: compat.Tracer, site: LiveSite) -> None:
    """Leave an output statement out, and warn when the trace is complete."""
    site.mended("dropped", _WHY)
    _note(tx, _DROPPED.of(tx.output), site, _warn)


def tell_of_check(tx: compat.Tracer, site: LiveSite) -> None:
    """Warn when the trace is complete if the assertion that a check becomes is left out."""
    if torch.onnx.is_in_onnx_export():
        _note(tx, _CHECKS.of(tx.output), site, _warn_of_checks)


def _note(
    tx: compat.Tracer,
    dropped: list[LiveSite],
    site: LiveSite,
    warn: Callable[[list[LiveSite]], None],
) -> None:
    if not dropped:
        at_the_end(tx.output, Phase.TELL, lambda module: warn(dropped))
    if site not in dropped:
        dropped.append(site)


def _warn(dropped: list[LiveSite]) -> None:
    if dropped:  # else the arms with these statements were refused
        text = f"an exported program writes no output; left out: {_places(dropped)}"
        warnings.warn(text, OutputDropped, stacklevel=2)


def _warn_of_checks(dropped: list[LiveSite]) -> None:
    if dropped:
        text = f"an ONNX program checks nothing; left out: {_places(dropped)}"
        warnings.warn(text, ChecksDropped, stacklevel=2)


def _places(sites: list[LiveSite]) -> str:
    return ", ".join(f"{_place(site)} ({site.key})" for site in sites)


def _place(site: LiveSite) -> str:
    line = site.line if site.plan is None else site.plan.line
    return shown_place(site.origin.co_filename, line)


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


class _LeftOut(threading.local):
    """The sites that an export of this thread leaves out; ``None`` while there is none."""

    sites: list[LiveSite] | None = None


_LEFT_OUT: Final = _LeftOut()


@contextmanager
def told_at_the_end() -> Iterator[None]:
    """Warn of what a block that exports has left out, if it ends without an exception."""
    before, _LEFT_OUT.sites = _LEFT_OUT.sites, []
    try:
        yield
        _warn(_LEFT_OUT.sites)
    finally:
        _LEFT_OUT.sites = before


def drop_plainly(key: str) -> bool:
    """Leave an output statement out if a program is being exported; return whether it is."""
    if not is_exported():
        return False
    site = site_table.find(key)
    if site is not None:
        site.mended("dropped", _WHY)
        if _LEFT_OUT.sites is not None and site not in _LEFT_OUT.sites:
            _LEFT_OUT.sites.append(site)
    return True
