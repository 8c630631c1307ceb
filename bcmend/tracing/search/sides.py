"""Which side of a branch graphs have that have one of them: calls that take the other are left.

That is what ``Policy(one_sided="exit")`` makes of a branch where one graph is asked for and each
form of the branch was refused. Which side it is:

1. the one that alone could be traced, or else the one where the condition is false;
2. the other, if a trace with the first one stops all the same, or most of the first calls leave;
3. the first again, if a trace with the other stops before any graph had that.

So the side changes at most twice, and only once between graphs that were compiled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from bcmend.tracing.search.assumptions import Claim, Finding, Subject
from bcmend.tracing.search.falsified import weaken

#: So many first calls are counted.
_COUNTED: Final = 16

#: Why graphs have the other side.
_STOPS: Final = "a trace with the first side has stopped"
_MOST_LEAVE: Final = "most calls take it"


@dataclass(slots=True)
class Exits:
    """How many of the first calls have left a graph that has one side of a branch.

    ``is_settled``: that side stays, whatever is counted; ``is_captured``: a graph has had it, so
    that it is not the reason if a trace stops.
    """

    calls: int = 0
    left: int = 0
    is_settled: bool = False
    is_captured: bool = False

    def note(self, *, is_left: bool) -> None:
        if self.calls < _COUNTED:
            self.calls += 1
            self.left += is_left

    @property
    def are_most(self) -> bool:
        """Return whether both of the first two calls have left it, or most of the first sixteen."""
        are_both = (self.calls, self.left) == (2, 2)
        are_most = self.calls == _COUNTED and 2 * self.left > _COUNTED
        return not self.is_settled and (are_both or are_most)


@dataclass(slots=True, eq=False)
class Branch(Subject):
    """A branch of which graphs may have one side.

    ``exits``: the calls that have left such graphs; ``None`` before there was one.
    """

    exits: Exits | None = field(default=None, init=False, repr=False)

    @property
    def is_refused(self) -> bool:
        """Return whether the latest trace could do nothing else with it."""
        raise NotImplementedError

    @property
    def may_have_one_side(self) -> bool:
        """Return whether graphs are to have one side of it where they cannot have both."""
        raise NotImplementedError

    @property
    def first_side(self) -> bool:
        """Return the truth of its condition for which graphs have its side at first."""
        raise NotImplementedError


def side_of(branch: Subject) -> bool | None:
    """Return the truth of a condition for which graphs have the side; ``None``: they have both."""
    first = next(iter(branch.all_found(Claim.BOTH_SIDES)), None)
    return None if first is None else bool(first) is not _is_turned(branch)


def _is_turned(branch: Subject) -> bool:
    return not branch.holds(Claim.FIRST_SIDE) and branch.holds(Claim.OTHER_SIDE)


def why_turned(branch: Subject) -> str:
    """Return why graphs have not the side that they had at first; empty if they have."""
    found = branch.found(Claim.FIRST_SIDE)
    return found.evidence if found is not None and _is_turned(branch) else ""


def have_one(branch: Subject, side: bool) -> bool:
    """Have graphs take one side of a branch; return whether that is new."""
    return side_of(branch) is None and weaken(Finding(Claim.BOTH_SIDES, branch, side))


def turn(branch: Subject) -> bool:
    """Have graphs take the other side, since most calls do; return whether that is new."""
    return weaken(Finding(Claim.FIRST_SIDE, branch, evidence=_MOST_LEAVE))


def turn_stopped(branch: Subject) -> bool:
    """Have a trace that has stopped take the other side of a branch; return whether that is new."""
    return weaken(Finding(Claim.FIRST_SIDE, branch, evidence=_STOPS)) or turn_back(branch)


def turn_back(branch: Subject) -> bool:
    """Have graphs take the first side again; return whether that is new."""
    return not branch.holds(Claim.FIRST_SIDE) and weaken(Finding(Claim.OTHER_SIDE, branch))


def is_turned_for_calls(branch: Subject) -> bool:
    """Return whether graphs are to have the other side since most calls take that."""
    return why_turned(branch) == _MOST_LEAVE


@dataclass(slots=True)
class NotedSides:
    """Branches that the latest trace has come to, in this order.

    ``refused``: those that were refused, and could be left by a side exit, with whether an arm was
    being traced; ``taken``: those of which it has one side, likewise; ``decided``: those whose
    conditions were computed in front of it, with their truths.
    """

    refused: list[tuple[Branch, bool]] = field(default_factory=list)
    taken: list[tuple[Branch, bool]] = field(default_factory=list)
    decided: list[tuple[Branch, bool]] = field(default_factory=list)

    def clear(self) -> None:
        for each in (self.refused, self.taken, self.decided):
            each.clear()

    def leave(self) -> bool:
        """Have graphs take one side of the branch at which the trace has stopped, or the other one.

        Return whether that is new.
        """
        for branch, is_in_an_arm in self._uncaptured():
            if is_in_an_arm and is_turned_for_calls(branch):
                return turn_back(branch)
        return (
            any(have_one(each, each.first_side) for each in self._stopped_at())
            or self.turn()
            or any(
                each.may_have_one_side and have_one(each, not truth)
                for each, truth in reversed(self.decided)
            )
        )

    def turn(self) -> bool:
        """Have graphs take the other side of a branch of which the stopped trace has had one."""
        return any(map(turn_stopped, (branch for branch, _ in reversed(self._uncaptured()))))

    def note_captured(self) -> None:
        """Note that a graph has the sides that its trace has taken."""
        for branch, _ in self._uncaptured():
            assert branch.exits is not None
            branch.exits.is_captured = True

    def _uncaptured(self) -> list[tuple[Branch, bool]]:
        return [each for each in self.taken if each[0].exits and not each[0].exits.is_captured]

    def _stopped_at(self) -> list[Branch]:
        """Return the branch at which the trace has stopped, behind those in its arms, if any.

        Those in the arms of its first form: wider ones have what is behind the branch.
        """
        outer = [branch for branch, is_in_an_arm in self.refused if not is_in_an_arm][-1:]
        found: list[Branch] = []
        for branch, is_in_an_arm in self.refused:
            if is_in_an_arm:
                found.append(branch)
            elif branch in outer:
                break
            else:
                found.clear()
        return [each for each in (*found, *outer) if each.is_refused and each.may_have_one_side]
