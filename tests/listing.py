"""A small language for the functions that graph and analysis tests are about.

One instruction a line, ``name:`` for a label, ``-> name`` for a jump's target, and
``.try start end handler depth [lasti]`` for a try range::

        LOAD_FAST flag
        POP_JUMP_IF_FALSE -> other
        RETURN_CONST 1
    other:
        RETURN_CONST 2
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from bcmend.bytecode.instructions import (
    FunctionCode,
    Instruction,
    Shape,
    TryRange,
)
from bcmend.bytecode.opcodes import row


@dataclass(frozen=True, slots=True)
class Listing:
    """A function and the index of each of its labels."""

    function: FunctionCode
    at: dict[str, int]


def shape_of(arguments: tuple[str, ...] = (), **changes: object) -> Shape:
    """Return the shape of a plain function with these positional arguments."""
    values: dict[str, object] = {
        "name": "f",
        "qualname": "f",
        "filename": "listing.py",
        "first_lineno": 1,
        "argcount": len(arguments),
        "posonlyargcount": 0,
        "kwonlyargcount": 0,
        "flags": 3,  # CO_OPTIMIZED and CO_NEWLOCALS: what every plain function has
        "argnames": arguments,
        "varnames": arguments,
    }
    return Shape(**{**values, **changes})  # type: ignore[arg-type]


def listing(text: str, arguments: tuple[str, ...] = (), cellvars: tuple[str, ...] = ()) -> Listing:
    """Return the function that ``text`` spells."""
    at: dict[str, int] = {}
    lines: list[list[str]] = []
    directives: list[list[str]] = []
    for words in (line.split() for line in text.splitlines() if line.strip()):
        if words[0].endswith(":"):
            at[words[0][:-1]] = len(lines)
        elif words[0] == ".try":
            directives.append(words[1:])
        else:
            lines.append(words)
    instructions = tuple(_instruction(words, at) for words in lines)
    tries = tuple(
        TryRange(at[start], at[end], at[handler], int(depth), lasti == ["lasti"])
        for start, end, handler, depth, *lasti in directives
    )
    shape = shape_of(arguments, cellvars=cellvars)
    return Listing(FunctionCode(shape, instructions, tries), at)


def _instruction(words: list[str], at: dict[str, int]) -> Instruction:
    op, *rest = words
    if rest[:1] == ["->"]:
        return Instruction(op, None, at[rest[1]])
    if not rest:
        return Instruction(op)
    kind, text = row(op).argument, " ".join(rest)
    if kind == "flagged_name":
        return Instruction(op, (False, text))
    return Instruction(op, ast.literal_eval(text) if kind in ("int", "const") else text)
