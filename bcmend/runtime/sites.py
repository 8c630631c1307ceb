"""The live sites: what the traced code consults and what tracing found out.

Rewritten bytecode names a site by its key, a string constant. Here is the one mutable table behind
those keys: whether the site is switched on, what the policy asks of it, and what became of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Final

__all__ = [
    "LiveSite",
    "allow_exits_again",
    "begin_call",
    "being_traced",
    "calls_at",
    "clear_recent",
    "find",
    "forget",
    "forget_refusal",
    "leave_without_exit",
    "may_have_exit",
    "not_now",
    "recent_refusal",
    "register",
    "withdraw_recent",
]


@dataclass(slots=True, eq=False)
class LiveSite:
    """One site of one code object.

    Attributes:
        key: unique name, a constant in the rewritten bytecode.
        kind: "branch", "guard", "output" or "call".
        origin: the code object before it was rewritten.
        branch, output, guards: what the policy asks for (see ``bcmend.policy``).
        withdrawn: slug of the reason for which the site is off; empty while it is on.
        detail: one line beside the slug.
        lowering: what the site became at the last trace that reached it; empty before.
        inside: for each form of a branch, the offsets in ``origin`` of the stretches of its arms,
            first and last.
        returning: for each form of a branch, whether its arms return.
        flags: for each form of a branch, the positions of live-outs that tell by which way a block
            is left.
        place: of a branch that a turn of a loop comes back to, the blocks where it goes on and
            where its arms meet; the tests before and behind a ``while`` loop have the same.
        why: why it became that and nothing else, where there was a choice.
        copied: numbers of the tensors, among those that records of this site keep in a trace, that
            are copied, since they were seen to change later.
        clone_bytes: how many bytes those are at each call; ``None`` if that is not known.
        computes_ahead: whether what only output in an arm reads is computed in the graph, since
            what it is computed from was seen to change later.
        stored_later: attributes of objects of the arguments that were seen to be stored to later.
        reads: the forms in which a live-out that has no common form was seen to be read, where the
            code could not be split, in the outermost call being made.
        returns: the forms in which both sides of one are kept, since it was seen to be returned by
            the call, or to be read by code that can go on in halves.
        goes_on_in_halves: even the code that has the site is split where it reads one.
        aliased: the forms in which a merged tensor would have to be an older one.
        side_exits: whether side exits are worth their while: no, once the plain call behind one has
            not failed and the graph may break.
        line: of a call that may be substituted, which no plan lists.
        refused: slug and detail of why the last trace that reached the site left it alone.
    """

    key: str
    kind: str
    origin: CodeType
    branch: str = "auto"
    output: str = "defer"
    guards: str = "defer"
    withdrawn: str = ""
    detail: str = ""
    lowering: str = ""
    why: str = ""
    copied: set[int] = field(default_factory=set)
    clone_bytes: int | None = None
    computes_ahead: bool = False
    side_exits: bool = True
    stored_later: set[str] = field(default_factory=set)
    inside: tuple[tuple[tuple[int, int], ...], ...] = ()
    place: tuple[int, int, int] | None = None
    returning: tuple[bool, ...] = ()
    flags: tuple[frozenset[int], ...] = ()
    reads: set[int] = field(default_factory=set)
    returns: set[int] = field(default_factory=set)
    aliased: set[int] = field(default_factory=set)
    goes_on_in_halves: bool = False
    line: int | None = None
    refused: dict[str, str] = field(default_factory=dict)

    def is_like(self, other: LiveSite) -> bool:
        """Whether both are the same place under the same choices."""
        return self.origin is other.origin and (self.branch, self.output, self.guards) == (
            other.branch,
            other.output,
            other.guards,
        )

    @property
    def active(self) -> bool:
        return not self.withdrawn

    @property
    def is_worth_widening(self) -> bool:
        """Whether the branch might be mended if its arms went on further."""
        return not _WIDENED.isdisjoint(self.refused)

    def mended(self, lowering: str, why: str = "") -> None:
        self.lowering, self.why = lowering, why
        self.refused.clear()
        _RECENT.sites[self.key] = self

    def refuse(self, slug: str, detail: str = "") -> None:
        """Note that this trace could not mend the site; a later one, on other values, may."""
        self.refused = {slug: detail}
        _RECENT.refusal = (slug, detail)
        if slug in ("random-under-gradients", "too-deep"):
            _RECENT.not_now.add(self.key)

    def note_read(self, form: int) -> None:
        """Note, for as long as the outermost call lasts, that a form has to merge everything."""
        self.reads.add(form)
        _RECENT.read.append(self)

    def withdraw(self, slug: str, detail: str = "") -> None:
        """Switch the site off for good."""
        self.withdrawn, self.detail = slug, detail
        self.lowering = ""


def _unknown(name: str, code: CodeType) -> bool:
    return True


#: Whether code that is reached, other than ``code``, names an attribute; set by the installation.
named_elsewhere: Callable[[str, CodeType], bool] = _unknown


#: Why a branch is refused that can be mended if its arms share more of what follows.
_WIDENED: Final = frozenset(["arms-differ", "arm-untraceable", "alias-changed"])


class _Recent(threading.local):
    """The sites that this thread's traces mended since it was last cleared."""

    def __init__(self) -> None:
        self.sites: dict[str, LiveSite] = {}
        self.not_now: set[str] = set()
        self.read: list[LiveSite] = []
        self.without_exit: set[str] = set()
        self.refusal: tuple[str, str] | None = None


_RECENT = _Recent()
_SITES: dict[str, LiveSite] = {}
_LOCK = threading.Lock()


def register(site: LiveSite) -> None:
    with _LOCK:
        _SITES[site.key] = site


def find(key: str) -> LiveSite | None:
    return _SITES.get(key)


def being_traced(tx: Any, code: CodeType, what: str, kind: str) -> LiveSite:
    """Return the site of ``what`` is being traced at a line of ``code``, which no plan lists."""
    key = f"{tx.f_globals.get('__name__', '')}.{code.co_qualname}:{tx.lineno}:{what}"
    found = find(key)
    if found is None or found.origin.co_filename != code.co_filename:
        found = LiveSite(key, kind, code, line=tx.lineno)
        register(found)
    return found


def calls_at(places: Container[tuple[str, int | None]]) -> list[LiveSite]:
    """Return the sites of calls that may be substituted, at files and lines."""
    return [
        site
        for site in list(_SITES.values())
        if site.kind == "call" and (site.origin.co_filename, site.line) in places
    ]


def forget(key: str) -> None:
    with _LOCK:
        _SITES.pop(key, None)


def not_now(site: LiveSite) -> bool:
    """Whether the outermost call being made found, in another of its frames, that a site must stay.

    Tracing the arms again in each frame that a broken graph leaves would come to the same.
    """
    return site.key in _RECENT.not_now


def begin_call() -> None:
    """Forget what an earlier outermost call of this thread found."""
    _RECENT.not_now.clear()
    for site in _RECENT.read:
        site.reads.clear()
    _RECENT.read.clear()
    _RECENT.without_exit.clear()


def leave_without_exit(site: LiveSite) -> None:
    """Make no side exit for a site in the traces of the outermost call being made."""
    _RECENT.without_exit.add(site.key)


def allow_exits_again() -> None:
    """Forget for which sites no side exits are made, since the frame will be another one."""
    _RECENT.without_exit.clear()


def may_have_exit(site: LiveSite) -> bool:
    """Whether a side exit for a site makes sense, as far as is known."""
    return site.side_exits and site.key not in _RECENT.without_exit


def forget_refusal() -> None:
    """Have ``recent_refusal`` know of later ones only."""
    _RECENT.refusal = None


def recent_refusal() -> tuple[str, str] | None:
    """Return slug and detail of this thread's last refusal since ``forget_refusal``."""
    return _RECENT.refusal


def clear_recent() -> None:
    """Start a new list of the sites that a trace mends."""
    _RECENT.sites.clear()


def withdraw_recent(slug: str, detail: str) -> bool:
    """Withdraw the sites mended since ``clear_recent``; say whether there were any."""
    recent = [site for site in _RECENT.sites.values() if site.active]
    for site in recent:
        site.withdraw(slug, detail)
    _RECENT.sites.clear()
    return bool(recent)
