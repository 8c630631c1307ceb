"""Code in canonical form: what decoding produces and assembling reads.

Canonical means: no CACHE, EXTENDED_ARG or PRECALL, no mark behind a conditional jump, no direction
in the names of jumps, fused instructions taken apart, one name for what does the same: a load of a
cell itself is always LOAD_CLOSURE, a subscript BINARY_SUBSCR, a constant LOAD_CONST, and what
enters the block of a ``with`` one instruction.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple


class DecodeError(ValueError):
    """Raised for a code object that has no canonical form."""


class UnknownOpcode(DecodeError):
    """Raised for an opcode that has no row of facts."""


class AssembleError(ValueError):
    """Raised for instructions that do not make a sound code object."""


class Location(NamedTuple):
    """Where in the source an instruction comes from; all ``None`` for nowhere."""

    lineno: int | None = None
    end_lineno: int | None = None
    col_offset: int | None = None
    end_col_offset: int | None = None


class Label:
    """A place between instructions, compared by identity; the name is for printing."""

    __slots__ = ("name",)

    def __init__(self, name: str = "") -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<Label {self.name or hex(id(self))}>"


class Instruction(NamedTuple):
    """One canonical instruction; ``opcodes.row(op)`` has the facts about it."""

    op: str
    #: The value of a constant, the name of a variable, ``(bool, name)`` for LOAD_GLOBAL and for
    #: LOAD_ATTR where it can load a method, an enumeration member for operators, an int.
    arg: Any = None
    target: int | Label | None = None  # an index in decoded code, a label in code being built
    offset: int = -1  # in bytes, in the code it was decoded from
    location: Location | None = None  # None: that of the instruction before


@dataclass(frozen=True, slots=True)
class TryRange:
    """Instructions whose exceptions go to a handler.

    ``start``, ``end`` (exclusive) and ``handler`` are indices in decoded code, labels in code being
    built. The handler starts with the lowest ``depth`` operands, then the offset of the failing
    instruction if ``push_lasti``, then the exception.
    """

    start: int | Label
    end: int | Label
    handler: int | Label
    depth: int
    push_lasti: bool

    @property
    def bounds(self) -> tuple[int, int]:
        """The start and the end in decoded code."""
        return decoded_index(self.start), decoded_index(self.end)

    def covers(self, index: int) -> bool:
        """Return whether an instruction of decoded code is in the range."""
        start, end = self.bounds
        return start <= index < end

    def moved(self, place: Callable[[int | Label], int | Label]) -> TryRange:
        """Return the range between what ``place`` gives for the start, the end and the handler."""
        return replace(
            self, start=place(self.start), end=place(self.end), handler=place(self.handler)
        )


@dataclass(frozen=True, slots=True)
class Shape:
    """Everything of a code object that is not its instructions, as CPython counts it."""

    name: str
    qualname: str
    filename: str
    first_lineno: int
    argcount: int
    posonlyargcount: int
    kwonlyargcount: int
    flags: int
    argnames: tuple[str, ...]  # with those of ``*args`` and ``**kwargs``
    varnames: tuple[str, ...]  # starts with ``argnames``; assembling adds what instructions name
    cellvars: tuple[str, ...] = ()
    freevars: tuple[str, ...] = ()
    docstring: str | None = None

    def of_part(self, arguments: tuple[str, ...], freevars: tuple[str, ...]) -> Shape:
        """Return the shape of a plain function that is made of a part of this one's code."""
        flags = inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS  # nor that there is a docstring
        return replace(
            self._of_positional(arguments, arguments),
            flags=flags | (inspect.CO_NESTED if freevars else 0),
            cellvars=(),
            freevars=freevars,
            docstring=None,
        )

    def flattened(self, *last: str) -> Shape:
        """Return a shape in which all arguments are positional, and ``last`` are some more."""
        arguments = (*self.argnames, *last)
        others = tuple(name for name in self.varnames if name not in self.argnames)
        flags = self.flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
        return replace(self._of_positional(arguments, (*arguments, *others)), flags=flags)

    def _of_positional(self, arguments: tuple[str, ...], varnames: tuple[str, ...]) -> Shape:
        return replace(
            self,
            argcount=len(arguments),
            posonlyargcount=0,
            kwonlyargcount=0,
            argnames=arguments,
            varnames=varnames,
        )


def argument_count(argcount: int, kwonlyargcount: int, flags: int) -> int:
    """Return the number of all arguments, ``*args`` and ``**kwargs`` included."""
    gathering = (inspect.CO_VARARGS, inspect.CO_VARKEYWORDS)
    return argcount + kwonlyargcount + sum(bool(flags & each) for each in gathering)


@dataclass(frozen=True, slots=True)
class FunctionCode:
    """A code object in canonical form."""

    shape: Shape
    instructions: tuple[Instruction, ...]
    tries: tuple[TryRange, ...]


def decoded_index(place: object) -> int:
    """Return ``place`` as the index that it is in decoded code, where nothing is a label."""
    if not isinstance(place, int):
        raise TypeError(f"{place} is not an index; graphs are made of decoded code")
    return place


def retargeted(
    instructions: Iterable[Instruction], place: Callable[[int | Label], int | Label]
) -> tuple[Instruction, ...]:
    """Return instructions whose jumps go to what ``place`` gives for their targets."""
    return tuple(
        each if each.target is None else each._replace(target=place(each.target))
        for each in instructions
    )
