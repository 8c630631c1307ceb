"""Compute what instructions touch: locals, cells, and what forbids moving them.

Code can be moved into a function of its own only where it neither inspects nor suspends its frame.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from bcmend.analysis.facts import Facts
from bcmend.bytecode.instructions import Instruction
from bcmend.bytecode.opcodes import row

#: Calls that read or write the locals of the frame that they are in.
_LOOKS_AT_ITS_FRAME: Final = frozenset(["locals", "vars", "dir", "exec", "eval"])
_LOOKS_AT_ITS_FRAME_BY_ATTRIBUTE: Final = frozenset(["_getframe", "currentframe", "getouterframes"])
#: Names of all of these. Code that uses none of them inspects no frame.
LOOKING_AT_FRAMES: Final = _LOOKS_AT_ITS_FRAME | _LOOKS_AT_ITS_FRAME_BY_ATTRIBUTE

#: What ``super()`` without arguments reads, though on Python 3.11 no instruction names it.
_CLASS_CELL = "__class__"


@dataclass(frozen=True, slots=True)
class Touched:
    """Names that some instructions touch."""

    read: frozenset[str]  # locals
    written: frozenset[str]
    deleted: frozenset[str]
    cells: frozenset[str]  # cells and free variables that are read, bound or captured
    cells_written: frozenset[str]  # those of them that are bound or unbound
    introspects: str  # name of a call that inspects its own frame; empty if none
    uses_super: bool  # whether ``super()`` is called without arguments
    suspends: bool  # whether the frame is suspended, to be resumed later


def touched(facts: Facts, indices: Iterable[int]) -> Touched:
    """Return what the instructions at ``indices`` touch."""
    here = [(row(each.op), each) for each in map(facts.instructions.__getitem__, indices)]
    cells = {each.arg for known, each in here if known.argument == "cell"}
    uses_super = any(known.reads == "global" and names_of(each) == "super" for known, each in here)
    if uses_super and _CLASS_CELL in facts.function.shape.freevars:
        cells.add(_CLASS_CELL)
    return Touched(
        frozenset(each.arg for known, each in here if known.reads == "local"),
        frozenset(each.arg for known, each in here if known.writes == "local"),
        frozenset(each.arg for known, each in here if known.deletes == "local"),
        frozenset(cells),
        frozenset(each.arg for known, each in here if "cell" in (known.writes, known.deletes)),
        next(filter(None, (_introspection(each) for _, each in here)), ""),
        uses_super,
        any(known.suspends for known, _ in here),
    )


def names_of(instruction: object) -> str:
    """Return the name that a load of a global or an attribute names; empty for others."""
    arg = getattr(instruction, "arg", None)
    if isinstance(arg, tuple) and arg and isinstance(arg[-1], str):
        return arg[-1]
    return arg if isinstance(arg, str) else ""


def _introspection(instruction: Instruction) -> str:
    known = row(instruction.op)
    if known.argument not in ("name", "flagged_name"):
        return ""
    name = names_of(instruction)
    is_global = known.reads == "global" and name in _LOOKS_AT_ITS_FRAME
    return name if is_global or name in _LOOKS_AT_ITS_FRAME_BY_ATTRIBUTE else ""
