"""What a trace may take for granted, and what is done where that does not hold.

A trace is a function of code and of what is assumed of it. It returns a graph, or it falsifies an
assumption, and then the code is traced again without that one. Every claim is given up at most once
for each subject while it lives, so that the search ends; ``docs/search.md`` lists the claims.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

from bcmend.tracing.search import epochs


class Lifetime(Enum):
    """How long a falsified assumption is not made again."""

    CALL = "the length of the outermost call"
    CAPTURE = "one call between two captures"
    PATCHED = ""  # until the object is unpatched


class ClaimRow(NamedTuple):
    """What a claim says, and what is done once it is falsified.

    Attributes:
        meaning: what is taken for granted.
        instead: what the next trace does.
        lifetime: for how long.
        rewrites: whether the code is written anew; else the same code is traced again.
    """

    meaning: str
    instead: str
    lifetime: Lifetime = Lifetime.PATCHED
    rewrites: bool = False


_CALL, _CAPTURE = Lifetime.CALL, Lifetime.CAPTURE


class Claim(Enum):
    """What may be assumed, of a site first, then of a body, then of a place in code."""

    MENDED = ClaimRow("the site can be mended", "the site stays as it is")
    MENDED_NOW = ClaimRow("the site can be mended in this call", "it stays as it is", _CALL)
    READ_APART = ClaimRow(
        "nothing reads what the arms leave in two forms", "all that the arms leave is merged", _CALL
    )
    ADDED_UP = ClaimRow(
        "what one side appends to a list is only counted, added up or joined",
        "the sides have to append alike",
    )
    COMPUTED_WITH = ClaimRow(
        "a number that the arms leave in two forms is only computed with", "the two are kept apart"
    )
    DROPPED = ClaimRow(
        "what the arms leave in two forms is not returned",
        "both sides are stored, and the choice is made after the graph",
    )
    SELECTED_ALIKE = ClaimRow(
        "what masks select in an arm need not have the size that the other side leaves",
        "they select all where the arm is not taken",
    )
    KEPT = ClaimRow(
        "a graph can have the side of a branch on which nothing is selected",
        "it is left by a side exit",
    )
    BOTH_SIDES = ClaimRow(
        "a graph can have both sides of a branch", "it has one, and is left by a side exit"
    )
    FIRST_SIDE = ClaimRow(
        "most calls take the side that a graph has, which Dynamo can trace", "it has the other"
    )
    OTHER_SIDE = ClaimRow("Dynamo can trace that other side", "the graph has the first again")
    UNROLLED = ClaimRow(
        "the few turns of a loop can be traced one by one", "the loop is one operator of the graph"
    )
    LEFT = ClaimRow("a loop that is left goes over nothing more", "its turns are traced one by one")
    CARRIED = ClaimRow(
        "no tensor that a loop carries is told from an older one", "its turns are traced one by one"
    )
    LOCAL = ClaimRow(
        "a variable that the arms set dies with its frame", "a record stores the side taken"
    )
    SHARED = ClaimRow(
        "a tensor that both names have on one side alone may be merged", "it is kept apart"
    )
    NEW = ClaimRow("a merged tensor need not be an older one", "this form of the branch is refused")
    UNCHANGED = ClaimRow("a tensor of a record is not changed later", "the record copies it")
    COMPUTED_LATE = ClaimRow(
        "what only output reads can be computed when it is written", "the graph computes it"
    )
    NOT_STORED = ClaimRow(
        "an attribute that output shows is not stored later", "the record keeps it"
    )
    STAYS_INSIDE = ClaimRow(
        "a tensor that is to require gradients stays in the graph", "it is told so after the graph"
    )
    THROWN_AWAY = ClaimRow("the graph can be thrown away for a side exit", "no side exit", _CALL)
    FAILS = ClaimRow("the call behind a side exit fails", "the arm is compiled")
    JOINED = ClaimRow(
        "code reads what its own branches leave in one form", "it is split there", rewrites=True
    )

    UNCAUGHT = ClaimRow(
        "what a body raises is caught by nobody inside the outermost call",
        "a check that cannot be a side exit is left unchanged",
    )
    WHOLE = ClaimRow("the body can be captured whole", "its graph may break")
    COMPILED_PATH = ClaimRow(
        "what code does where it is being compiled can be captured", "it is told that it is not"
    )
    SETTLED = ClaimRow("a call sets up nothing for later ones", "it runs in plain Python", _CAPTURE)
    NUMBERS = ClaimRow("the graph need not know a number out of a tensor", "it stays in its tensor")
    NUMBER_LATE = ClaimRow(
        "a number out of a tensor is needed in the graph alone", "it is computed before the call"
    )
    DRAWN = ClaimRow(
        "random numbers that decide a branch are read by nothing else", "the graph alone draws them"
    )
    CONSTANT = ClaimRow("the call does not change a buffer that it reads", "its value is not used")
    TRACEABLE = ClaimRow("Dynamo can trace a function", "it is called on the host")
    CAPTURED = ClaimRow("torch captures the code as it is", "it is mended", rewrites=True)
    SOUND = ClaimRow("bcmend does not fail", "the code is compiled as without bcmend")

    DECIDED = ClaimRow("a jump tests no tensor", "it becomes a site", rewrites=True)
    NARROW = ClaimRow("the arms of a branch meet soon", "they go on further", rewrites=True)
    WRITES_NOTHING = ClaimRow("a call writes nothing", "it becomes a site", rewrites=True)
    WHOLE_CODE = ClaimRow(
        "nothing reads a value that arms leave in two forms", "the code is split", rewrites=True
    )
    ALL_TURNS = ClaimRow(
        "each iteration of a loop runs", "iterations can be skipped", rewrites=True
    )
    OWN_EXIT = ClaimRow(
        "a loop is left by one jump, which makes no other branch around it",
        "all turns end at one test of whether it is left",
        rewrites=True,
    )


Key = tuple[Claim, Hashable]

_NUMBERS: Final = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Finding:
    """An assumption that does not hold.

    Attributes:
        claim: what was assumed.
        subject: of which site, body or code.
        of: of which form, number, name or offset of it; ``None`` if there is one alone.
        evidence: what was found, in one line; empty if the place says it.
        slug: a reason of ``bcmend.reasons`` where that is a refusal.
        number: counts the findings of this process, in the order in which they were made.
    """

    claim: Claim
    subject: Subject
    of: Hashable = None
    evidence: str = field(default="", compare=False)
    slug: str = field(default="", compare=False)
    number: int = field(default_factory=_NUMBERS.__next__, compare=False, repr=False)

    @property
    def known(self) -> Finding | None:
        """Return the same finding as made before."""
        return self.subject.found(self.claim, self.of)

    def __str__(self) -> str:
        return f"{self.subject.name}: {self.claim.value.instead}"


def latest_number() -> int:
    """Return a number between those of the findings until now and those of later ones."""
    return next(_NUMBERS)


class _InCall(threading.local):
    """What this thread has found that holds for its outermost call."""

    def __init__(self) -> None:
        self.findings: dict[tuple[Subject, Claim, Hashable], Finding] = {}


_IN_CALL: Final = _InCall()


@dataclass(slots=True, eq=False)
class Subject:
    """A site, a body or code, of which something is assumed.

    ``findings`` is what was falsified so far; it is replaced, and never changed.
    """

    findings: Mapping[Key, Finding] = field(default_factory=dict, init=False, repr=False)

    @property
    def name(self) -> str:
        """Return what a log calls it."""
        raise NotImplementedError

    def holds(self, claim: Claim, of: Hashable = None) -> bool:
        """Return whether the present trace may take a claim for granted."""
        return self.found(claim, of) is None

    def found(self, claim: Claim, of: Hashable = None) -> Finding | None:
        """Return what has falsified a claim."""
        found = self.findings.get((claim, of))
        return _IN_CALL.findings.get((self, claim, of)) if found is None else found

    def all_found(self, claim: Claim) -> list[Any]:
        """Return for which forms, numbers or names a claim is falsified."""
        in_call = [
            of for subject, each, of in _IN_CALL.findings if (subject, each) == (self, claim)
        ]
        return [of for each, of in self.findings if each is claim] + in_call


def note(finding: Finding) -> bool:
    """Take something for granted no more; return whether it was until now."""
    subject, claim = finding.subject, finding.claim
    if finding.known is not None:
        return False
    if claim.value.lifetime is _CALL:
        _IN_CALL.findings[subject, claim, finding.of] = finding
    else:
        subject.findings = {**subject.findings, (claim, finding.of): finding}
    epochs.end()
    return True


def assume_again(subject: Subject, claim: Claim, of: Hashable = None) -> None:
    """Take something for granted again."""
    if _IN_CALL.findings.pop((subject, claim, of), None) is not None:
        epochs.end()
    if (claim, of) in subject.findings:
        known = subject.findings.items()
        subject.findings = {key: each for key, each in known if key != (claim, of)}
        epochs.end()


def begin_call() -> None:
    """Forget what held for the last outermost call of this thread."""
    _IN_CALL.findings.clear()
