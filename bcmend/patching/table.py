"""What is patched in this process, and what traces have reported of its code.

Code objects are told apart by identity, since equal ones of different modules are not the same;
only what was written is found by equality: Dynamo stores constants, and may trace an equal arm that
it met before. The table keeps neither functions nor their code alive.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Final

from bcmend.bytecode.names_used import code_objects
from bcmend.knowledge import opt_out
from bcmend.patching.subject import module_of
from bcmend.policy import DEFAULT, Policy
from bcmend.rewrite.mended import Mended
from bcmend.tracing.search.assumptions import Claim, Finding, Subject
from bcmend.tracing.search.falsified import weaken
from bcmend.tracing.sites import site_table
from bcmend.tracing.sites.body_states import Stop
from bcmend.weak_tables import ByIdentity

#: What is assumed of places in code, and what ``Context`` calls those of which it does not hold.
KINDS: Final = {
    Claim.DECIDED: "asked",
    Claim.NARROW: "wide",
    Claim.WHOLE_CODE: "splits",
    Claim.WRITES_NOTHING: "calls",
    Claim.ALL_TURNS: "masked_loops",
    Claim.OWN_EXIT: "joined_exits",
}

#: Stands for owners that do not exist any more.
NOBODY: Final = 0


@dataclass(slots=True, eq=False)
class Patched:
    """A function that carries mended code.

    Attributes:
        owners: identities of the objects in whose name it was patched; what several own stays
            patched until the last is unpatched.
        written: every code object that frames of it may have had.
    """

    function: weakref.ref[FunctionType]
    original: CodeType
    mended: Mended
    policy: Policy
    owners: set[int]
    written: list[CodeType] = field(default_factory=list)

    def runs(self, code: CodeType) -> bool:
        """Return whether ``code`` has the original instructions; the shell has them too."""
        return code is self.original or code is self.mended.shell


@dataclass(slots=True, eq=False)
class Places(Subject):
    """The places in one code object; ``function`` is its qualified name."""

    function: str

    @property
    def name(self) -> str:
        return self.function


class Table:
    """The patched functions by identity, and what is known of code.

    Attributes:
        analyses: what each function became, or would, under each policy.
        places: what was found of places in code, by offset.
        reached: all code that was found for each owner, mended or not, with a function that has it.
        policies: the policy of each owner of ``reached``.
        numbers: of code whose sites would have the keys of other code, what marks their keys.
        lock: held while anything of this is read or changed.
    """

    def __init__(self) -> None:
        self.functions: dict[int, Patched] = {}
        self.analyses: weakref.WeakKeyDictionary[FunctionType, dict[Policy, Mended]] = (
            weakref.WeakKeyDictionary()
        )
        self._by_code: weakref.WeakValueDictionary[tuple[int, Policy], Mended] = (
            weakref.WeakValueDictionary()
        )
        self.places: ByIdentity[CodeType, Places] = ByIdentity()
        self.reached: dict[int, ByIdentity[CodeType, weakref.ref[FunctionType]]] = {}
        self.policies: dict[int, Policy] = {}
        self.numbers: ByIdentity[CodeType, int] = ByIdentity()
        self.lock = threading.RLock()

    def of(self, function: FunctionType) -> Patched | None:
        return self.functions.get(id(function))

    def alive(self) -> list[tuple[FunctionType, Patched]]:
        """Return the patched functions."""
        found = ((patched.function(), patched) for patched in list(self.functions.values()))
        return [(function, patched) for function, patched in found if function is not None]

    def looked_at(self) -> Iterator[tuple[FunctionType, Policy]]:
        """Yield the patched functions and those that were reached and analysed, with the policy."""
        yield from ((function, patched.policy) for function, patched in self.alive())
        for function, policies in list(self.analyses.items()):
            if self.of(function) is None and self.is_reached(function.__code__):
                yield function, list(policies)[-1]

    def code_of_sites(self) -> dict[str, tuple[CodeType, Policy]]:
        """Return the code that each site of what is patched is in, as it was, and the policy."""
        return {
            site.name: (code, each.policy)
            for each in list(self.functions.values())
            for code, site in each.mended.sites
        }

    # Analyses

    def analysis(self, function: FunctionType, code: CodeType, policy: Policy) -> Mended | None:
        """Return what ``code`` has become, for this function or for another that shares it."""
        found = self._by_code.get((id(code), policy))
        if found is not None:  # which keeps its code alive, so that the identity is still its own
            self.analyses.setdefault(function, {})[policy] = found
        return found

    def note_analysis(self, function: FunctionType, policy: Policy, mended: Mended) -> None:
        """Store an analysis for as long as the function lives."""
        self.analyses.setdefault(function, {})[policy] = mended
        self._by_code[id(mended.original), policy] = mended

    def analyses_of(self, codes: Iterable[CodeType]) -> list[Mended]:
        """Return what code has become under any policy."""
        wanted = set(map(id, codes))
        return [mended for (code, _), mended in self._by_code.items() if code in wanted]

    def forget_analysis(self, code: CodeType, policy: Policy) -> None:
        self._by_code.pop((id(code), policy), None)

    def forget_places(self, codes: Iterable[CodeType]) -> None:
        """Assume all of the places in code anew, and forget what it has become without that."""
        for code in codes:
            of_places = [each for each in code_objects(code) if each in self.places]
            for each in of_places:
                self.places.pop(each)
            if of_places:
                for key in [known for known in list(self._by_code) if known[0] == id(code)]:
                    self._by_code.pop(key, None)

    def forget_analyses(self) -> None:
        with self.lock:
            self._by_code.clear()
            self.analyses.clear()

    # Places

    def note(self, claim: Claim, code: CodeType, offsets: set[int]) -> bool:
        """Assume a claim no more of places in ``code``; return whether it was until now."""
        places = self.places.setdefault(code, lambda: Places(code.co_qualname))
        return weaken(*(Finding(claim, places, offset) for offset in sorted(offsets)))

    def seen(self, claim: Claim) -> frozenset[tuple[int, int]]:
        """Return of which places a claim does not hold: identity of the code, offset."""
        return frozenset(
            (id(code), offset)
            for code, places in self.places.items()
            for each, offset in places.findings
            if each is claim and isinstance(offset, int)
        )

    # Code that was written

    def owners_of(self, code: CodeType) -> list[list[Patched]]:
        """Return the functions that ``code`` was written for; those with one result together."""
        return self._owners(lambda mended: code in mended.sources)

    def owners_of_site(self, key: str) -> list[list[Patched]]:
        """Return the functions that have the site of a key; those with one result together."""
        return self._owners(lambda mended: any(site.name == key for _, site in mended.sites))

    def _owners(self, is_meant: Callable[[Mended], bool]) -> list[list[Patched]]:
        found: dict[int, list[Patched]] = {}
        for patched in list(self.functions.values()):
            if is_meant(patched.mended):
                found.setdefault(id(patched.mended), []).append(patched)
        return list(found.values())

    def holders_of(self, code: CodeType) -> list[tuple[Patched, CodeType]]:
        """Return the functions in which ``code`` is nested, itself not yet rewritten, and where.

        Dynamo may have met an equal constant before, and then it names that one.
        """
        return [
            (each, nested)
            for each in list(self.functions.values())
            for nested in code_objects(each.original)
            if nested is not each.original
            and nested == code
            and nested.co_filename == code.co_filename
        ]

    def codes_in_use(self) -> set[int]:
        """Return the identities of the code of patched functions, and of what is nested in it."""
        return {
            id(code)
            for patched in list(self.functions.values())
            for outer in (patched.original, *patched.written)
            for code in code_objects(outer)
        }

    def key_for(self, name: str, code: CodeType) -> str:
        """Return the key of a site of ``code``: its name, marked if a patched function has that."""
        number = self.numbers.get(code) or 1
        while not self.may_have(code, key := name if number == 1 else f"{name}@{number}"):
            number += 1
        if number > 1:
            self.numbers.put(code, number)
        return key

    def may_have(self, code: CodeType, key: str) -> bool:
        """Return whether no other code of a patched function has the site of a key."""
        known = site_table.code_with_site(key)
        return known is None or known is code or id(known) not in self.codes_in_use()

    def on_stack(self, stops: Iterable[Stop]) -> list[Patched]:
        """Return the patched functions whose code frames have, innermost first."""
        return [each for stop in stops for each in self._patched_at(stop)]

    def _patched_at(self, stop: Stop) -> list[Patched]:
        written = [each for found in self.owners_of(stop.code) for each in found]
        known = None if written or stop.function is None else self.of(stop.function)
        # A function without sites runs its original instructions inside of others.
        return [known] if known is not None and known.runs(stop.code) else written

    def original_of(self, stop: Stop, policy: Policy) -> CodeType | None:
        """Return the code of a frame before it was mended; ``None`` for code that never is."""
        for owners in self.owners_of(stop.code):
            return owners[0].mended.sources[stop.code]
        for _, nested in self.holders_of(stop.code):
            return nested
        function = stop.function
        if function is None or not touches(policy, function):
            return None
        known = self.of(function)
        return known.original if known is not None and known.runs(stop.code) else stop.code

    # What was reached

    def note_reached(
        self, owner: int, functions: Iterable[FunctionType], policy: Policy = DEFAULT
    ) -> None:
        self.policies[owner] = policy
        found = self.reached.setdefault(owner, ByIdentity())
        for function in functions:
            found.put(self.as_written(function), weakref.ref(function))

    def is_reached(self, code: CodeType) -> bool:
        """Return whether code was found for any owner."""
        return any(code in found for found in list(self.reached.values()))

    def reached_in(self, codes: Container[CodeType]) -> Iterator[tuple[FunctionType, CodeType]]:
        """Yield the reached functions of which ``codes`` has the code, as it was or as written."""
        for found in list(self.reached.values()):
            for original, reference in found.items():
                if (function := reference()) is not None:
                    known = self.of(function)
                    written = () if known is None else known.written
                    if code := next((each for each in (original, *written) if each in codes), None):
                        yield function, code

    def reached_around(self, code: CodeType) -> list[tuple[FunctionType, CodeType]]:
        """Return reached functions with nothing mended in which ``code`` is nested, and where."""
        return [
            (function, nested)
            for found in list(self.reached.values())
            for outer, reference in found.items()
            for nested in code_objects(outer)
            if nested == code and nested is not outer and nested.co_filename == code.co_filename
            if (function := reference()) is not None and self.of(function) is None
        ]

    def as_written(self, function: FunctionType) -> CodeType:
        """Return the code of a function before it was patched."""
        known = self.of(function)
        return function.__code__ if known is None else known.original

    def is_named_elsewhere(self, name: str, code: CodeType) -> bool:
        """Return whether code reached together with ``code``, other than it, names an attribute."""
        for reached in list(self.reached.values()):
            found = [each for outer, _ in reached.items() for each in code_objects(outer)]
            others = [each for each in found if each is not code]
            if len(others) < len(found) and any(_names(each, name) for each in others):
                return True
        return False

    def orphan(self, owner: int) -> None:
        """Leave patched, with ``NOBODY`` as the owner, what an owner had that is gone."""
        with self.lock:
            self.policies.pop(owner, None)
            for code, function in self.reached.pop(owner, ByIdentity()).items():
                self.reached.setdefault(NOBODY, ByIdentity()).put(code, function)
            for patched in list(self.functions.values()):
                if owner in patched.owners:
                    patched.owners.remove(owner)
                    patched.owners.add(NOBODY)


def touches(policy: Policy, function: FunctionType) -> bool:
    """Return whether a policy, and its source, let the code of a function be rewritten."""
    return policy.touches(module_of(function)) and not opt_out.is_function_off(function)


def _names(code: CodeType, name: str) -> bool:
    return name in code.co_names or name in code.co_consts


TABLE: Final = Table()
