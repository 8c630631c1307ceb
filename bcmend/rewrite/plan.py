"""What a rewriting rule can say of a place in a function, and the plan that gathers it.

Rules propose and never edit: each gets facts and returns a lowering or a refusal. A plan is the
list of all of them for one function, at most one lowering for an instruction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from bcmend.names import LEAVES_BEGINS

__all__ = [
    "SPLIT",
    "ArmRegion",
    "BranchLowering",
    "Callee",
    "GuardLowering",
    "Lowering",
    "OutputLowering",
    "Plan",
    "Refusal",
    "RegionKey",
    "Site",
    "Slice",
    "Trial",
    "chained",
]

#: The kind of a site that splits the code where it reads a value that has one form on each side.
SPLIT: Final = "split"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a site is left as it was: a slug of ``bcmend.reasons``, and one line beside it.

    ``unbound`` are locals that stand in the way because they may have no value.
    """

    slug: str
    detail: str = ""
    unbound: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ArmRegion:
    """A raising arm, which can become a function.

    Attributes:
        entry: its first block.
        blocks: its blocks, handlers of its own try ranges included.
        base: how many operands lie under everything that it does.
    """

    entry: int
    blocks: frozenset[int]
    base: int


@dataclass(frozen=True, slots=True)
class BranchLowering:
    """Both arms become entries of a region function.

    Attributes:
        jump: the conditional jump; of a split, the instruction that both arms begin with.
        then_entry: the block where control goes on if the condition is true.
        else_entry: the block where it goes on if not.
        join: the block where the arms meet, or ``EXIT`` where they return.
        blocks: the blocks of both arms, handlers of their own try ranges included.
        base: how many operands lie under everything that the arms do.
        operands: how many operands on top of those the arms are given.
        extra: how many operands lie on top of those at the join.
        kept: for which truth of the condition it stays on the stack as a value of its own.
        inputs: the locals that the arms are given.
        outputs: the locals that they give back.
        cells: the cells that they need.
        first: the function's first argument, where an arm calls ``super()``.
        outer: positions of the try ranges that stay around the region.
        nulls: which of the operands that the arms are given are NULLs, counted from the lowest.
        wider: what to try next where the arms turn out to have nothing in common at the join: the
            same branch with its join further down.
    """

    jump: int
    then_entry: int
    else_entry: int
    join: int
    blocks: frozenset[int]
    base: int
    operands: int
    extra: int
    kept: bool | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    cells: tuple[str, ...]
    first: tuple[str, ...]
    outer: frozenset[int]
    nulls: frozenset[int] = frozenset()
    wider: BranchLowering | None = None

    @property
    def returns(self) -> bool:
        return self.join < 0

    @property
    def flags(self) -> frozenset[int]:
        """The positions of outputs that tell by which way a block is left."""
        found = (n for n, name in enumerate(self.outputs) if name.startswith(LEAVES_BEGINS))
        return frozenset(found)

    @property
    def alternatives(self) -> tuple[BranchLowering, ...]:
        """The branch, then its wider forms, in the order in which they are tried."""
        return (self, *(self.wider.alternatives if self.wider else ()))

    @property
    def region(self) -> RegionKey:
        return RegionKey(self.join, self.base, self.outputs, self.outer)


def chained(forms: Sequence[BranchLowering]) -> BranchLowering:
    """Return the first of ``forms``, with the others as what to try next, in their order."""
    *narrower, lowering = forms
    for form in reversed(narrower):
        lowering = replace(form, wider=lowering)
    return lowering


@dataclass(frozen=True, slots=True)
class RegionKey:
    """What branches have to agree on so that one region function serves them all."""

    join: int
    base: int
    outputs: tuple[str, ...]
    outer: frozenset[int]


@dataclass(frozen=True, slots=True)
class GuardLowering:
    """The raising arm becomes a function, to be called when the records are delivered.

    ``raises_if`` is the truth of the condition under which it raises; ``goes_on`` the block where
    control continues; ``operands`` how many operands under the condition the arm is given, as the
    two tests of a chained comparison share the middle one.
    """

    jump: int
    arm: ArmRegion
    raises_if: bool
    goes_on: int
    operands: int
    inputs: tuple[str, ...]
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Slice:
    """Instructions ``start`` to ``end`` (exclusive) that push one operand."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Callee:
    """What a statement calls, as far as only a trace can tell whether it writes.

    ``load`` pushes the object that has the method ``method``, or, where that is empty, what is
    called itself. ``level`` pushes the first argument, where the method is ``log``.
    """

    load: Slice
    method: str
    level: Slice | None


@dataclass(frozen=True, slots=True)
class Trial:
    """What may fail of the arguments that an output statement makes when it is delivered.

    ``parts`` push operands, and ``inputs`` are the positions of the inputs that they read.
    ``chance`` says when they can fail: 1, if a tensor among these is empty or not of floating-point
    numbers; 2, if one is not a single number; 3, whatever they are.
    """

    parts: tuple[Slice, ...]
    inputs: frozenset[int]
    chance: int


@dataclass(frozen=True, slots=True)
class OutputLowering:
    """The call ``start`` to ``end`` becomes a function of the values of ``inputs``.

    Attributes:
        start: the first instruction.
        end: the instruction behind the call, and behind the POP_TOP that drops its result.
        inputs: what is evaluated where the call stands; the rest is when the record is delivered.
        callee: what has to turn out to write, if that is not known.
        is_dropped: whether the result is dropped; else the call gives None at its place.
        stack_level: to which of its callers the output is attributed, 1 being none; -1 if only the
            call itself tells.
        unless_silent: why it cannot be deferred where it does write; empty if it can.
        shows_tracebacks: whether it may show where exceptions were, and which one is being handled.
        trial: what has to be tried before the graph's effects, since it may fail.
    """

    start: int
    end: int
    inputs: tuple[Slice, ...]
    callee: Callee | None
    is_dropped: bool = True
    unless_silent: str = ""
    stack_level: int = 1
    shows_tracebacks: bool = False
    trial: Trial | None = None


Lowering = BranchLowering | GuardLowering | OutputLowering


@dataclass(frozen=True, slots=True)
class Site:
    """One place of a function that stops Dynamo, and what is to become of it.

    ``inside`` holds, for each form of a branch, the stretches of instructions that make up its
    arms, by the offsets of the first and the last of each. ``place`` is there for a branch that a
    turn of a loop comes back to: its two entries and its join.
    """

    name: str
    kind: str
    index: int
    line: int | None
    offset: int
    decision: Lowering | Refusal
    inside: tuple[tuple[tuple[int, int], ...], ...] = ()
    place: tuple[int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """All sites of one function, in the order of their instructions."""

    sites: Sequence[Site] = field(default=())

    @property
    def lowerings(self) -> dict[int, Site]:
        """The sites to be lowered, by the instruction where each begins; splits left out."""
        return self._lowered(is_split=False)

    @property
    def splits(self) -> dict[int, Site]:
        """The splits to be made, by the instruction that each stands in front of."""
        return self._lowered(is_split=True)

    def _lowered(self, *, is_split: bool) -> dict[int, Site]:
        return {
            site.index: site
            for site in self.sites
            if not isinstance(site.decision, Refusal) and (site.kind == SPLIT) is is_split
        }
