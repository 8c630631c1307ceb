"""Lowerings and refusals, which rewriting rules propose for sites, and the plan of all sites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from bcmend.names import LEAVES_BEGINS, SPLIT


@dataclass(frozen=True, slots=True)
class SiteRefusal:
    """Why a site is left unchanged: a slug of ``bcmend.reasons``, and one line of detail.

    ``unbound`` are locals that prevent a lowering because they may be unbound.
    """

    slug: str
    detail: str = ""
    unbound: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class HandlerRefusal(SiteRefusal):
    """The refusal of a region that a handler outside of it prevents; with it inside one may do."""


@dataclass(frozen=True, slots=True)
class BranchLowering:
    """Both arms become entries of a region function.

    Attributes:
        jump: the conditional jump; of a split, the instruction that both arms begin with.
        then_entry: the block where control continues if the condition is true.
        else_entry: the block where it continues if not.
        join: the block where the arms meet, or ``EXIT`` where they return.
        blocks: the blocks of both arms, handlers of their own try ranges included.
        base: how many operands lie under all that the arms take or move.
        operands: how many operands on top of those the arms are given.
        extra: how many operands lie on top of those at the join.
        retained_if: for which truth of the condition it stays on the stack as a value of its own.
        inputs: the locals that the arms are given.
        outputs: the locals that they give back.
        cells: the cells that they need.
        first: the function's first argument, where an arm calls ``super()``.
        outer: positions of the try ranges that stay around the region.
        nulls: which of the operands that the arms are given are NULLs, counted from the lowest.
        wider: what to try next where the live-outs have no common form: a form with a later join.
    """

    jump: int
    then_entry: int
    else_entry: int
    join: int
    blocks: frozenset[int]
    base: int
    operands: int
    extra: int
    retained_if: bool | None
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
        """The positions of the outputs that say which exit of a ``with`` block is taken."""
        return frozenset(n for n, name in enumerate(self.outputs) if name.startswith(LEAVES_BEGINS))

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
    """What branches have in common that share a region function."""

    join: int
    base: int
    outputs: tuple[str, ...]
    outer: frozenset[int]


@dataclass(frozen=True, slots=True)
class GuardLowering:
    """The raising arm becomes a function, to be called when the records are delivered.

    It raises where the condition is ``raises_if``; else control continues at a block. ``entry`` is
    the arm's first block, ``blocks`` include handlers of its own try ranges, and ``base`` is how
    many operands lie under all that it takes or moves. ``operands`` is how many operands under the
    condition the arm is given.
    """

    jump: int
    entry: int
    blocks: frozenset[int]
    base: int
    raises_if: bool
    continues_at: int
    operands: int
    inputs: tuple[str, ...]
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CodeRange:
    """Instructions ``start`` to ``end`` (exclusive) that push one operand."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Callee:
    """What a statement calls, where only a trace can determine whether that writes.

    ``load`` pushes the object that has ``method``, or what is called itself where that is empty.
    ``level`` pushes the first argument, where the method is ``log``.
    """

    load: CodeRange
    method: str
    level: CodeRange | None


class Fails(IntEnum):
    """When something fails that an output statement evaluates as it is delivered."""

    NEVER = 0
    UNLESS_USUAL = 1  # if a tensor that it is of is empty, or not of floating-point numbers
    UNLESS_NUMBERS = 2  # if one is not a single number
    POSSIBLY = 3
    NOT_TWICE = 4  # it must not be evaluated twice


@dataclass(frozen=True, slots=True)
class Trial:
    """What may fail of the arguments that an output statement evaluates when it is delivered.

    ``parts`` push operands, and ``inputs`` are the positions of the inputs that they read.
    ``fails`` says when they can.
    """

    parts: tuple[CodeRange, ...]
    inputs: frozenset[int]
    fails: Fails


@dataclass(frozen=True, slots=True)
class OutputLowering:
    """The call ``start`` to ``end`` becomes a function of the values of ``inputs``.

    Attributes:
        start: the first instruction.
        end: the instruction behind the call, and behind the POP_TOP that drops its result.
        inputs: what is evaluated where the call stands; the rest is evaluated at delivery.
        callee: what the trace has to check for writing, if that is not known.
        is_dropped: whether the result is dropped; else the call gives None at its place.
        stack_level: to which of its callers the output is attributed, 1 being none; -1 if only the
            call itself determines that.
        unless_silent: why it cannot be deferred where it does write; empty if it can.
        shows_tracebacks: whether it may show tracebacks, or the exception that is being handled.
        trial: what has to be tried before the effects of the graph, since it may fail.
    """

    start: int
    end: int
    inputs: tuple[CodeRange, ...]
    callee: Callee | None
    is_dropped: bool = True
    unless_silent: str = ""
    stack_level: int = 1
    shows_tracebacks: bool = False
    trial: Trial | None = None


@dataclass(frozen=True, slots=True)
class TruthLowering:
    """The jump stays, on a constant where its condition is computed in front of the graph.

    ``refusal`` is why its arms are no functions.
    """

    jump: int
    refusal: SiteRefusal


Lowering = BranchLowering | GuardLowering | OutputLowering | TruthLowering


@dataclass(frozen=True, slots=True)
class Site:
    """A place of a function that stops Dynamo, and the decision about it.

    ``inside`` has the first and the last offset of each block of the arms, for each form of a
    branch. ``place`` is the entries and join of a branch that an iteration of a loop comes back to.
    """

    name: str
    kind: str
    index: int
    line: int | None
    offset: int
    decision: Lowering | SiteRefusal
    inside: tuple[tuple[tuple[int, int], ...], ...] = ()
    place: tuple[int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """All sites of one function, in the order of their instructions."""

    sites: Sequence[Site] = ()

    @property
    def lowerings(self) -> dict[int, Site]:
        """The sites to be lowered, by the instruction where each begins; splits left out."""
        return {each.index: each for each in self._lowered if each.kind != SPLIT}

    @property
    def splits(self) -> dict[int, Site]:
        """The splits to be made, by the instruction that each stands in front of."""
        return {each.index: each for each in self._lowered if each.kind == SPLIT}

    @property
    def _lowered(self) -> list[Site]:
        return [each for each in self.sites if not isinstance(each.decision, SiteRefusal)]
