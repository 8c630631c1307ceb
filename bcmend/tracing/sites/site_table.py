"""The live sites: what the traced code consults and what tracing found out.

Rewritten bytecode names a site by its key, a string constant.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from types import CodeType
from typing import Any

from bcmend.bytecode.names_used import origin_of
from bcmend.dynamo import compat, frames
from bcmend.knowledge import opt_out
from bcmend.policy import Policy
from bcmend.tracing.search.falsified import weaken
from bcmend.tracing.sites.live_state import RECENT
from bcmend.tracing.sites.live_state import LiveSite as LiveSite
from bcmend.tracing.sites.session import SESSION


def register(site: LiveSite) -> None:
    SESSION.sites[site.key] = site
    # Not by the global: it may be gone before the code is, when Python ends.
    site.when_gone(partial(_forget, SESSION.sites, site.key))


def find(key: str) -> LiveSite | None:
    return SESSION.sites.get(key)


def _forget(sites: dict[str, LiveSite], key: str) -> None:
    """Remove a site whose code is gone."""
    site = sites.get(key)
    if site is not None and site.is_gone:
        sites.pop(key, None)


def code_with_site(key: str) -> CodeType | None:
    """Return the code that has the site of a key; ``None`` if there is none, or it is gone."""
    found = find(key)
    return None if found is None else found._code()


def forget(codes: Iterable[CodeType], in_use: Callable[[], Container[int]]) -> None:
    """Remove the sites of code, and of what was written for it, so that they are found anew.

    Not those of code that only stands at the same place, if ``in_use`` has its identity.
    """
    gone = set(map(origin_of, codes)) if SESSION.sites else set()
    found = []
    for key in list(SESSION.sites):
        known = code_with_site(key)
        if known is not None and origin_of(known) in gone:
            found.append((key, known))
    kept = in_use() if found else ()
    for key, known in found:
        if id(known) not in kept:
            SESSION.sites.pop(key, None)


def site_being_traced(tx: compat.Tracer, code: CodeType, what: str, kind: str) -> LiveSite:
    """Return the site of ``what`` at the line of ``code`` being traced; no plan lists it."""
    key = f"{tx.f_globals.get('__name__', '')}.{code.co_qualname}:{tx.lineno}:{what}"
    found = find(key)
    known = None if found is None else found._code()
    if found is None or known is None or known.co_filename != code.co_filename:
        found = LiveSite(key, kind, code, line=tx.lineno)
        register(found)
        if key in SESSION.off:
            weaken(found.unmendable(*SESSION.off.pop(key)))
    return found


def number_being_traced(tx: compat.Tracer, what: str) -> LiveSite | None:
    """Return the site of a number at the line being traced; ``None`` where it is left alone."""
    site = site_being_traced(tx, frames.resumed(tx.f_code), what, "number")
    policy = frames.mark_over(tx)
    return None if policy is None or is_left_alone(site, tx, policy) else site


def is_left_alone(site: LiveSite, tx: Any, policy: Policy) -> bool:
    """Return whether a site of ``being_traced`` is off: for good, by the policy or by a comment."""
    lines = opt_out.lines_off(site.origin.co_filename, tx.f_globals)
    return not site.active or policy.is_off(site.key) or site.line in lines


def withdraw(key: str, slug: str, detail: str = "") -> None:
    """Withdraw the site of a key, which may be one that this process has not met."""
    found = find(key)
    if found is None:
        SESSION.off[key] = slug, detail
    else:
        weaken(found.unmendable(slug, detail))


def take_up_again() -> None:
    """Forget what was withdrawn before it was met."""
    SESSION.off.clear()


def forget_unplanned(of: Container[CodeType] | None = None) -> None:
    """Forget the sites that no plan lists: those of some code, or all.

    All once nothing is patched any more: their code may be of the standard library, and outlive
    what called it.
    """
    for key, site in SESSION.sites.copy().items():
        if site.plan is None and (of is None or site._code() in of):
            SESSION.sites.pop(key, None)


def met_at(places: Container[tuple[str, int | None]]) -> list[tuple[LiveSite, CodeType]]:
    """Return the sites that no plan lists, at files and lines, and their code."""
    return [
        (site, code)
        for site in list(SESSION.sites.values())
        if site.kind in ("call", "number")
        and (code := site._code()) is not None
        and (code.co_filename, site.line) in places
    ]


def forget_refusal() -> None:
    RECENT.refusal = None


def recent_refusal() -> tuple[str, str] | None:
    """Return slug and detail of this thread's last refusal since ``forget_refusal``."""
    return RECENT.refusal


@contextmanager
def to_be_widened(sites: Collection[LiveSite]) -> Iterator[None]:
    """Know in a block of which branches wider forms are tried in this thread's trace."""
    before, RECENT.to_be_widened = RECENT.to_be_widened, sites
    try:
        yield
    finally:
        RECENT.to_be_widened = before


def is_to_be_widened(site: LiveSite) -> bool:
    return site in RECENT.to_be_widened


def clear_recent() -> None:
    RECENT.sites.clear()
    RECENT.refused.clear()


def recent_sites() -> list[LiveSite]:
    """Return the sites mended since ``clear_recent`` that are still on."""
    return [site for site in RECENT.sites.values() if site.active]
