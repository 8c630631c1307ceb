"""What a rewriting rule can say of a place in a function, and the plan that gathers it.

Rules propose and never edit: each gets facts and returns a lowering or a refusal. A plan is the
list of all of them for one function, at most one lowering for an instruction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = [
    "ArmRegion",
    "BranchLowering",
    "GuardLowering",
    "Lowering",
    "OutputLowering",
    "Plan",
    "Refusal",
    "Site",
    "Slice",
]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a site is left as it was: a slug of ``bcmend.reasons``, and one line beside it."""

    slug: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ArmRegion:
    """An arm that can become a function.

    Attributes:
        entry: its first block; the join for an empty arm.
        blocks: its blocks, handlers of its own try ranges included.
        join: the block after it, or ``EXIT`` where it returns.
        base: how many operands lie under everything that it does.
        extra: how many operands it leaves on the stack for the join.
    """

    entry: int
    blocks: frozenset[int]
    join: int
    base: int
    extra: int


@dataclass(frozen=True, slots=True)
class BranchLowering:
    """Both arms become functions of ``inputs`` that return ``outputs`` and the extra operands.

    ``then_arm`` is the arm where the condition is true.
    """

    jump: int
    then_arm: ArmRegion
    else_arm: ArmRegion
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    cells: tuple[str, ...]

    @property
    def returns(self) -> bool:
        return self.then_arm.join < 0


@dataclass(frozen=True, slots=True)
class GuardLowering:
    """The raising arm becomes a function, to be called when the records are delivered.

    ``raises_if`` is the truth of the condition under which it raises; ``goes_on`` the block where
    control continues.
    """

    jump: int
    arm: ArmRegion
    raises_if: bool
    goes_on: int
    inputs: tuple[str, ...]
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Slice:
    """Instructions ``start`` to ``end`` (exclusive) that push one operand."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class OutputLowering:
    """The statement ``start`` to ``end`` becomes a function of the values of ``inputs``.

    ``inputs`` are evaluated where the statement stands; the rest when the record is delivered.
    ``receiver``, if any, must turn out to be a logger.
    """

    start: int
    end: int
    inputs: tuple[Slice, ...]
    receiver: Slice | None


Lowering = BranchLowering | GuardLowering | OutputLowering


@dataclass(frozen=True, slots=True)
class Site:
    """One place of a function that stops Dynamo, and what is to become of it."""

    name: str
    kind: str
    index: int
    line: int | None
    offset: int
    decision: Lowering | Refusal


@dataclass(frozen=True, slots=True)
class Plan:
    """All sites of one function, in the order of their instructions."""

    sites: Sequence[Site] = field(default=())

    @property
    def lowerings(self) -> dict[int, Site]:
        """The sites to be lowered, by the instruction where each begins."""
        return {site.index: site for site in self.sites if not isinstance(site.decision, Refusal)}
