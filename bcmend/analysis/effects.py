"""What a stretch of code touches: locals, cells, and the things that forbid moving it.

Reads facts and a list of instructions; produces ``Touched``. Moving code into a function of its own
is only equal where the code does not look at its own frame and does not suspend it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from bcmend.analysis.facts import Facts
from bcmend.codeobj.opcodes import row

__all__ = ["LOOKING_AT_FRAMES", "Touched", "names_of", "touched"]

#: Calls that read or write the frame that they are in.
_LOOKS_AT_ITS_FRAME: Final = frozenset(["locals", "vars", "dir", "exec", "eval"])
_LOOKS_AT_ITS_FRAME_BY_ATTRIBUTE: Final = frozenset(["_getframe", "currentframe", "getouterframes"])
#: Names of all of these. Code that uses none of them looks at no frame.
LOOKING_AT_FRAMES: Final = _LOOKS_AT_ITS_FRAME | _LOOKS_AT_ITS_FRAME_BY_ATTRIBUTE

#: What ``super()`` without arguments reads, though on Python 3.11 no instruction names it.
_CLASS_CELL = "__class__"


@dataclass(frozen=True, slots=True)
class Touched:
    """Names that some instructions touch.

    Attributes:
        read, written, deleted: locals.
        cells: cells and free variables that are read, bound or captured.
        cells_written: those of them that are bound or unbound.
        introspects: name of a call that looks at its own frame; empty if none.
        uses_super: whether ``super()`` is called without arguments.
        suspends: whether the frame is left in the middle, to be resumed later.
    """

    read: frozenset[str]
    written: frozenset[str]
    deleted: frozenset[str]
    cells: frozenset[str]
    cells_written: frozenset[str]
    introspects: str
    uses_super: bool
    suspends: bool


def touched(facts: Facts, indices: Iterable[int]) -> Touched:
    """Return what the instructions at ``indices`` touch."""
    sets: dict[str, set[str]] = {key: set() for key in ("read", "written", "deleted")}
    cells: set[str] = set()
    cells_written: set[str] = set()
    introspects, uses_super, suspends = "", False, False
    for index in indices:
        instruction = facts.instructions[index]
        known = row(instruction.op)
        for key, kind in (
            ("read", known.reads),
            ("written", known.writes),
            ("deleted", known.deletes),
        ):
            if kind == "local":
                sets[key].add(instruction.arg)
        if known.argument == "cell":
            cells.add(instruction.arg)
            if known.writes == "cell" or known.deletes == "cell":
                cells_written.add(instruction.arg)
        introspects = introspects or _introspection(instruction.op, instruction.arg)
        suspends = suspends or known.suspends
        uses_super = uses_super or (known.reads == "global" and names_of(instruction) == "super")
    if uses_super and _CLASS_CELL in facts.function.shape.freevars:
        cells.add(_CLASS_CELL)
    return Touched(
        frozenset(sets["read"]),
        frozenset(sets["written"]),
        frozenset(sets["deleted"]),
        frozenset(cells),
        frozenset(cells_written),
        introspects,
        uses_super,
        suspends,
    )


def names_of(instruction: object) -> str:
    """Return the name that a load of a global or an attribute names; empty for others."""
    arg = getattr(instruction, "arg", None)
    if isinstance(arg, tuple) and arg and isinstance(arg[-1], str):
        return arg[-1]
    return arg if isinstance(arg, str) else ""


def _introspection(op: str, arg: object) -> str:
    known = row(op)
    name = arg[-1] if isinstance(arg, tuple) and arg else arg
    if known.reads == "global" and name in _LOOKS_AT_ITS_FRAME:
        return str(name)
    if known.argument in ("name", "flagged_name") and name in _LOOKS_AT_ITS_FRAME_BY_ATTRIBUTE:
        return str(name)
    return ""
