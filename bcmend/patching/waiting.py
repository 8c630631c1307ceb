"""Objects that wait to be mended until Dynamo stops in what they reach.

Nothing of them is analysed or changed, so that what needs no mending is captured as on torch alone.
``stops`` watches the traces of their code, and has them mended.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from types import CellType, CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final

from bcmend.dynamo import compat, frames, hooks
from bcmend.weak_tables import ByIdentity

if TYPE_CHECKING:
    from bcmend.patching.table import Patched

#: Patches an object in the name of an owner, which goes with a holder.
Install = Callable[[Any, int, Any], None]
#: Returns the functions that calling an object can reach.
Reach = Callable[[Any], Iterable[FunctionType]]


class Waiting:
    """An object that waits. It is not kept alive.

    Args:
        subject: the object.
        holder: what the owner goes with.
        starts: the functions that Dynamo may start at.
        kinds: the classes of its modules. Where it is gone they stand for it: copies of it, and
            others of its classes, run the same code.
        reach: looks for what is compiled without the object.
        ahead: patches an object at once.
        later: has an object wait.

    Raises:
        TypeError: ``subject`` or ``holder`` has no weak references.
    """

    def __init__(
        self,
        subject: Any,
        holder: object,
        starts: Iterable[FunctionType],
        kinds: Iterable[type],
        *,
        reach: Reach,
        ahead: Install,
        later: Install,
    ) -> None:
        is_bound = isinstance(subject, MethodType)
        self._subject = weakref.WeakMethod(subject) if is_bound else weakref.ref(subject)
        self.holder = weakref.ref(holder)
        self._starts: ByIdentity[CodeType, None] = ByIdentity()
        for each in starts:
            self._starts.put(each.__code__, None)
        self._kinds = [weakref.ref(each) for each in kinds]
        self._reach: Reach | None = reach
        self._ahead, self._later = ahead, later

    def starts(self) -> list[CodeType]:
        """Return the code that Dynamo may start at."""
        return [code for code, _ in self._starts.items()]

    def read(self) -> list[CodeType]:
        """Return the code that it reaches and that ``starts`` returns from now on, once."""
        reach, self._reach = self._reach, None
        if reach is None:
            return []
        subject = self._subject()
        subjects = self._living_kinds() if subject is None else [subject]
        codes = [function.__code__ for each in subjects for function in reach(each)]
        for code in codes:
            self._starts.put(code, None)
        return codes

    def mend(self, owner: int) -> None:
        """Patch it; where it is gone, its classes."""
        subject, holder = self._subject(), self.holder()
        if subject is not None and holder is not None:
            self._ahead(subject, owner, holder)
            return
        for kind in self._living_kinds():
            self._ahead(kind, id(kind), kind)

    def bequeath(self) -> None:
        """Have its classes wait."""
        for kind in self._living_kinds():
            self._later(kind, id(kind), kind)

    def _living_kinds(self) -> list[type]:
        return [kind for each in self._kinds if (kind := each()) is not None]


#: What waits, by owner.
_WAITING: Final[dict[int, Waiting]] = {}
#: In whose names code is waited for.
_OWNERS: Final[ByIdentity[CodeType, set[int]]] = ByIdentity()
#: What is being mended; patching one object may mend others.
_MENDING: Final[list[dict[int, Waiting]]] = []
#: Owners that are gone. Whoever comes by next sees to them: a finalizer may not wait for locks.
_GONE: Final[deque[int]] = deque()


def wait(owner: int, waiting: Waiting) -> None:
    """Have an object wait until Dynamo stops in it.

    Raises:
        MissingInTorch: torch has not what has to be watched. Nothing is changed.
    """
    hooks.REGISTRY.require_targets()
    with compat.compile_lock:
        _WAITING[owner] = waiting
        for code in waiting.starts():
            if code not in _OWNERS:
                frames.forget(code, "bcmend waits for its graph breaks", only_pieces=True)
            _OWNERS.setdefault(code, set).add(owner)
        weakref.finalize(waiting.holder(), _GONE.append, owner).atexit = False
        hooks.REGISTRY.watch(is_wanted=True)


def is_known(owner: int) -> bool:
    """Return whether an object waits, or is mended."""
    _see_to_those_that_are_gone()
    table = _table()
    return owner in _WAITING or (table is not None and owner in table.reached)


def waits(owner: int) -> bool:
    """Return whether an object waits."""
    _see_to_those_that_are_gone()
    return owner in _WAITING


def is_waited_for(code: CodeType) -> bool:
    """Return whether Dynamo may start at ``code`` in an object that waits."""
    return code in _OWNERS


def is_reached(code: CodeType) -> bool:
    """Return whether something that waits reaches ``code``, which is then waited for.

    What a program compiles beside the objects that wait may be a method of one, or a function that
    one calls. To know, all code that they reach is read, once.
    """
    if code not in _OWNERS and _WAITING and frames.is_of_the_program(code):
        with compat.compile_lock:
            for owner, waiting in list(_WAITING.items()):
                for each in waiting.read():
                    _OWNERS.setdefault(each, set).add(owner)
    return code in _OWNERS


def everything() -> list[CodeType]:
    """Return all code that is waited for."""
    return [code for each in list(_WAITING.values()) for code in each.starts()]


def is_mended(function: FunctionType) -> bool:
    """Return whether a function has mended code."""
    table = _table()
    return table is not None and table.of(function) is not None


def mended(
    code: CodeType, names: dict[str, Any] | None = None, cells: Iterable[CellType] | None = None
) -> Patched | None:
    """Return the mended function of which ``code`` is the original, if there is one.

    With ``names`` and ``cells``, only one that has these globals and this closure: functions that
    one ``def`` has made share their code.
    """
    table = _table()
    closure = [*map(id, cells or ())]
    patched: Patched
    for function, patched in () if table is None else table.alive():
        if patched.original is code and (
            names is None
            or (names is function.__globals__ and closure == [*map(id, function.__closure__ or ())])
        ):
            return patched
    return None


def wait_no_more(owner: int | None = None) -> None:
    """Have an object, or all of them, wait no more; they are not mended."""
    with compat.compile_lock:
        _see_to_those_that_are_gone()
        for each in list(_WAITING) if owner is None else [owner]:
            _take_out(each)
        _watch_no_more()


def _watch_no_more() -> None:
    """End the watch, if nothing waits any more and nothing that did is being mended.

    Not before: another thread may be about to compile what is mended.
    """
    if not (_WAITING or _MENDING):
        hooks.REGISTRY.watch(is_wanted=False)


def _take_out(owner: int) -> Waiting | None:
    waiting = _WAITING.pop(owner, None)
    for code in () if waiting is None else waiting.starts():
        owners = _OWNERS.get(code) or set()
        owners.discard(owner)
        if not owners:
            _OWNERS.pop(code)
    return waiting


def _see_to_those_that_are_gone() -> None:
    while _GONE:
        with compat.compile_lock:
            owner = _GONE.popleft()
            waiting = _WAITING.get(owner)
            if waiting is not None and waiting.holder() is None:
                _take_out(owner)
                waiting.bequeath()


def mend(codes: Iterable[CodeType]) -> bool:
    """Patch what waits for any of ``codes``; return whether anything did.

    What waits for code of an object that is mended is mended with it.
    """
    with compat.compile_lock:
        _see_to_those_that_are_gone()
        found: dict[int, Waiting] = {}
        codes = list(codes)
        while codes:
            owners = {owner for each in codes for owner in _OWNERS.get(each) or ()}
            fresh = {owner: _WAITING[owner] for owner in owners - found.keys()}
            found |= fresh
            codes = [code for each in fresh.values() for code in each.starts()]
        for owner in found:
            _take_out(owner)
        _MENDING.append(found)
        try:
            for owner, waiting in found.items():
                waiting.mend(owner)
        finally:
            _MENDING.pop()
            _watch_no_more()
        return bool(found)


def _table() -> Any:
    """Return the table of what is patched; ``None`` if nothing was so far."""
    module = sys.modules.get("bcmend.patching.table")
    return None if module is None else module.TABLE
