"""Which of the sites of a trace is at fault where what was made of them does not compile.

One after the other is switched off, those first that ask most of a back end; whichever makes no
difference is switched on again. Where none does alone, all are switched off together; where it
fails even so, none of them was at fault.
"""

from __future__ import annotations

import itertools
import re
import threading
import weakref
from types import CodeType
from typing import Final

from bcmend.tracing.search.assumptions import Claim, Finding, assume_again
from bcmend.tracing.search.falsified import weaken
from bcmend.tracing.sites import site_table
from bcmend.tracing.sites.site_table import LiveSite

#: Lowerings by what they ask of a back end, the most first. All others together come last.
_ASK_MOST: Final = ("while_loop", "cond")

#: So many sites of one of these lowerings are tried one by one; more of them together.
_MOST_ALONE: Final = 3


class _Search(threading.local):
    """What this thread's search has found.

    Attributes:
        failure: the failure whose cause is looked for.
        root: the code that its trace began in, where no boundary waits for the failure.
        on_trial: the sites that are off, so that the next try may do without them.
        innocent: those without which it has failed in the same way.
        guilty: those without which it has failed otherwise, or that were switched off together.
    """

    def __init__(self) -> None:
        self.failure = ""
        self.root: weakref.ref[CodeType] | None = None
        self.on_trial: list[LiveSite] = []
        self.innocent: list[LiveSite] = []
        self.guilty: list[LiveSite] = []


_SEARCH: Final = _Search()


def look_at(root: CodeType) -> None:
    """Begin, or go on with, a search in traces that begin in ``root``, outside of a boundary."""
    if _SEARCH.root is None or _SEARCH.root() is not root:
        convict()
        _SEARCH.root = weakref.ref(root)


def withdraw_recent(slug: str, detail: str) -> list[Finding]:
    """Withdraw some of the sites mended since ``clear_recent``; return which, and why."""
    recent = site_table.recent_sites()
    if not recent:
        return []
    site_table.clear_recent()
    failure = re.sub(r"\d+", "", detail)
    if failure == _SEARCH.failure:
        for site in _SEARCH.on_trial:
            _switch_on(site)
        _SEARCH.innocent += _SEARCH.on_trial
    else:
        _SEARCH.guilty += _SEARCH.on_trial
        _SEARCH.innocent.clear()
    _SEARCH.failure = failure
    suspects = [each for each in recent if each not in _SEARCH.innocent]
    if suspects:
        _SEARCH.on_trial = _most_suspect(suspects)
    else:
        _SEARCH.on_trial = [*recent, *(each for each in _SEARCH.innocent if each not in recent)]
        _SEARCH.innocent.clear()
    found = [site.unmendable(slug, detail) for site in _SEARCH.on_trial]
    weaken(*found)
    return found


def _most_suspect(sites: list[LiveSite]) -> list[LiveSite]:
    for lowering in _ASK_MOST:
        found = [each for each in sites if each.outcome.lowering == lowering]
        if found:
            return found[:1] if len(found) <= _MOST_ALONE else found
    return sites


def convict() -> None:
    """Leave withdrawn what was at fault: without it nothing has failed."""
    _end()


def acquit() -> None:
    """Switch on again all that was withdrawn, since it fails without them, too."""
    for site in itertools.chain(_SEARCH.on_trial, _SEARCH.guilty):
        _switch_on(site)
    _end()


def _switch_on(site: LiveSite) -> None:
    assume_again(site, Claim.MENDED)


def _end() -> None:
    _SEARCH.failure, _SEARCH.root = "", None
    for sites in (_SEARCH.on_trial, _SEARCH.innocent, _SEARCH.guilty):
        sites.clear()
