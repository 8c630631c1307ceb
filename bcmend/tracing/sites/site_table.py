"""The live sites: what the traced code consults and what tracing found out.

Rewritten bytecode names a site by its key, a string constant.
"""

from __future__ import annotations

import operator
import threading
import weakref
from collections.abc import Callable, Container, Iterable
from dataclasses import InitVar, dataclass, field
from functools import partial
from types import CodeType
from typing import Final

from bcmend.dynamo import compat
from bcmend.tracing.sites.session import SESSION


@dataclass(slots=True, eq=False)
class LiveSite:
    """One site of one code object.

    Attributes:
        key: unique name, a constant in the rewritten bytecode.
        kind: "branch", "guard", "output" or "call".
        code: the code object before it was rewritten, which a site does not keep alive; see
            ``origin``.
        branch, output, guards, untaken_gradients: what the policy asks for (see ``bcmend.policy``).
        withdrawn: slug of the reason for which the site is off; empty while it is on.
        detail: one line beside the slug.
        lowering: what the site became at the last trace that reached it; empty before.
        why: why it became that and nothing else, where there was a choice.
        copied: numbers of the tensors that records of this site copy, among those that they refer
            to, since they were seen to change later.
        clone_bytes: how many bytes those are at each call; ``None`` if that is not known.
        computes_ahead: whether what only output in an arm reads is computed in the graph, since
            what it is computed from was seen to change later.
        side_exits: whether side exits are worth their while: no, once the plain call behind one has
            not failed and the graph may break.
        stored_later: attributes of objects of the arguments that were seen to be stored to later.
        inside: for each form of a branch, the offsets in ``origin`` of the stretches of its arms,
            first and last.
        place: of a branch that an iteration of a loop comes back to, the blocks where it goes on
            and where its arms meet; the tests before and behind a ``while`` loop have the same.
        returning: for each form of a branch, whether its arms return.
        flags: for each form of a branch, the positions of live-outs that say by which way a block
            is left.
        reads: the forms in which a lazy phi of it was seen to be read, where the code could not be
            split, in the outermost call being made.
        returns: the forms in which both sides of a phi are stored, since it was seen to be returned
            by the call, or to be read by code that can go on in halves.
        aliased: the forms in which a merged tensor would have to be an older one.
        apart: the forms in which values that share memory, or are one object, on one side alone
            are not merged.
        reads_item: whether it is a split that was seen to read an item at a data-dependent place.
        goes_on_in_halves: whether even the code that has the site is split where it reads one.
        offset: where in ``origin`` it stands; -1 for a call that may be substituted.
        line: of a call that may be substituted, which no plan lists.
        refused: slug and detail of why the last trace that reached the site refused it.
    """

    key: str
    kind: str
    code: InitVar[CodeType]
    branch: str = "auto"
    output: str = "defer"
    guards: str = "defer"
    untaken_gradients: str = "none"
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
    apart: set[int] = field(default_factory=set)
    reads_item: bool = False
    goes_on_in_halves: bool = False
    offset: int = -1
    line: int | None = None
    refused: dict[str, str] = field(default_factory=dict)
    _code: weakref.ref[CodeType] = field(init=False, repr=False)

    def __post_init__(self, code: CodeType) -> None:
        # Not by the global: it may be gone before the code is, when Python ends.
        self._code = weakref.ref(code, partial(_forget, SESSION.sites, self.key))

    @property
    def origin(self) -> CodeType:
        code = self._code()
        assert code is not None  # whoever asks is tracing it
        return code

    def is_like(self, other: LiveSite) -> bool:
        """Return whether both are the same place under the same choices."""
        choices = operator.attrgetter("branch", "output", "guards", "untaken_gradients")
        return self._code() is other._code() and choices(self) == choices(other)

    @property
    def active(self) -> bool:
        return not self.withdrawn

    @property
    def is_worth_widening(self) -> bool:
        """Return whether the branch might be mended if its arms went on further."""
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
            _RECENT.refused_for_this_call.add(self.key)

    def note_read(self, form: int) -> None:
        """Note, for the length of the outermost call, that a form has to merge everything."""
        self.reads.add(form)
        _RECENT.read.append(self)

    def keep_apart(self, form: int) -> None:
        """Have no values merged that only one side shares; where that is so, give the form up."""
        (self.aliased if form in self.apart else self.apart).add(form)

    def withdraw(self, slug: str, detail: str = "") -> None:
        """Switch the site off for good."""
        self.withdrawn, self.detail = slug, detail
        self.lowering = ""


#: Why a branch is refused that can be mended if its arms share more of what follows.
_WIDENED: Final = frozenset(["arms-differ", "arm-untraceable", "alias-changed"])


class _Recent(threading.local):
    """What this thread's traces have found."""

    def __init__(self) -> None:
        self.sites: dict[str, LiveSite] = {}  # those mended since ``clear_recent``
        self.refusal: tuple[str, str] | None = None  # the last since ``forget_refusal``
        # In the outermost call:
        self.refused_for_this_call: set[str] = set()
        self.read: list[LiveSite] = []
        self.without_exit: set[str] = set()


_RECENT = _Recent()


def register(site: LiveSite) -> None:
    SESSION.sites[site.key] = site


def find(key: str) -> LiveSite | None:
    return SESSION.sites.get(key)


def _forget(sites: dict[str, LiveSite], key: str, code: object) -> None:
    """Remove a site whose code is gone."""
    site = sites.get(key)
    if site is not None and site._code() is None:
        sites.pop(key, None)


def code_of(key: str) -> CodeType | None:
    """Return the code that has the site of a key; ``None`` if there is none, or it is gone."""
    found = find(key)
    return None if found is None else found._code()


def forget(codes: Iterable[CodeType], in_use: Callable[[], Container[int]]) -> None:
    """Remove the sites of code, and of what was written for it, so that they are found anew.

    Not those of code that only stands at the same place, if ``in_use`` has its identity.
    """
    gone = set(map(_place_of, codes)) if SESSION.sites else set()
    found = []
    for key in list(SESSION.sites):
        known = code_of(key)
        if known is not None and _place_of(known) in gone:
            found.append((key, known))
    kept = in_use() if found else ()
    for key, known in found:
        if id(known) not in kept:
            SESSION.sites.pop(key, None)


def _place_of(code: CodeType) -> tuple[str, str, int]:
    """Return where code stands, which what is written for it keeps."""
    return code.co_filename, code.co_qualname, code.co_firstlineno


def being_traced(tx: compat.Tracer, code: CodeType, what: str, kind: str) -> LiveSite:
    """Return the site of ``what`` at the line of ``code`` being traced; no plan lists it."""
    key = f"{tx.f_globals.get('__name__', '')}.{code.co_qualname}:{tx.lineno}:{what}"
    found = find(key)
    known = None if found is None else found._code()
    if found is None or known is None or known.co_filename != code.co_filename:
        found = LiveSite(key, kind, code, line=tx.lineno)
        register(found)
    return found


def calls_at(places: Container[tuple[str, int | None]]) -> list[tuple[LiveSite, CodeType]]:
    """Return the sites of calls that may be substituted, at files and lines, and their code."""
    return [
        (site, code)
        for site in list(SESSION.sites.values())
        if site.kind == "call"
        and (code := site._code()) is not None
        and (code.co_filename, site.line) in places
    ]


def is_refused_for_this_call(site: LiveSite) -> bool:
    """Return whether another frame of the outermost call found that a site has to stay.

    Tracing the arms again in each frame that a broken graph leaves would come to the same.
    """
    return site.key in _RECENT.refused_for_this_call


def begin_call() -> None:
    """Forget what an earlier outermost call of this thread found."""
    _RECENT.refused_for_this_call.clear()
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
    return site.side_exits and site.key not in _RECENT.without_exit


def forget_refusal() -> None:
    _RECENT.refusal = None


def recent_refusal() -> tuple[str, str] | None:
    """Return slug and detail of this thread's last refusal since ``forget_refusal``."""
    return _RECENT.refusal


def clear_recent() -> None:
    _RECENT.sites.clear()


def recent_sites() -> list[LiveSite]:
    """Return the sites mended since ``clear_recent`` that are still on."""
    return [site for site in _RECENT.sites.values() if site.active]
