"""Canonical arguments to the numbers that stand for them.

Reads a ``Shape`` and canonical instructions; produces the constants, names and slots of the code
object being assembled, and the raw argument of each instruction.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from bcmend.codeobj.decode import ENUMERATIONS, Instruction, Shape, slot_names
from bcmend.codeobj.errors import AssembleError
from bcmend.codeobj.opcodes import row

_RAW_MEMBERS: Final = {
    kind: {member: raw for raw, member in table.items()} for kind, table in ENUMERATIONS.items()
}


@dataclass(frozen=True, slots=True)
class Tables:
    """Constants, names and slots of the code being assembled; grows only while it is made."""

    constants: dict[object, int]
    constant_values: list[object]
    names: dict[str, int]
    locals: dict[str, int]
    cells: dict[str, int]

    @classmethod
    def of(cls, shape: Shape, instructions: Sequence[Instruction]) -> Tables:
        """Collect what ``instructions`` name, after what ``shape`` puts first."""
        others = {*shape.cellvars, *shape.freevars} - set(shape.varnames)
        local_names = dict.fromkeys(shape.varnames)
        for each in instructions:
            if row(each.op).argument == "local" and each.arg not in others:
                local_names[each.arg] = None
        slots = slot_names(tuple(local_names), shape.cellvars, shape.freevars)
        locals_ = {name: index for index, name in reversed(list(enumerate(slots)))}
        # A free variable can share its name with the local of an inlined comprehension.
        cells = {name: locals_[name] for name in shape.cellvars}
        first_free = len(slots) - len(shape.freevars)
        cells.update({name: first_free + index for index, name in enumerate(shape.freevars)})
        tables = cls({}, [], {}, locals_, cells)
        # The first constant is the docstring if it is a string, so something has to be there.
        tables.constant(shape.docstring)
        return tables

    def constant(self, value: object) -> int:
        """Return the index of ``value``, which is added if it is new."""
        key = _constant_key(value)
        index = self.constants.setdefault(key, len(self.constant_values))
        if index == len(self.constant_values):
            self.constant_values.append(value)
        return index

    def name(self, name: str) -> int:
        """Return the index of ``name``, which is added if it is new."""
        return self.names.setdefault(name, len(self.names))

    def raw(self, instruction: Instruction) -> int | None:
        """Return the number that stands for the argument of ``instruction``."""
        kind, arg = row(instruction.op).argument, instruction.arg
        try:
            return self._raw(kind, arg)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise AssembleError(f"{instruction.op} cannot have the argument {arg!r}") from error

    def _raw(self, kind: str, arg: Any) -> int | None:
        if kind == "none":
            return None
        if kind == "int":
            return int(arg)
        if kind == "const":
            return self.constant(arg)
        if kind == "local":
            return self.locals[arg]
        if kind == "cell":
            return self.cells[arg]
        if kind in _RAW_MEMBERS:
            return _RAW_MEMBERS[kind][arg]
        return self._raw_name(kind, arg)

    def _raw_name(self, kind: str, arg: Any) -> int:
        if kind == "flagged_name":
            flag, name = arg
            return self.name(name) << 1 | bool(flag)
        if kind == "super":
            method, two_arguments, name = arg
            return self.name(name) << 2 | bool(two_arguments) << 1 | bool(method)
        return self.name(arg)


def _constant_key(value: object) -> object:
    """Return a key that is equal only for constants that no program can tell apart."""
    if isinstance(value, float):
        return float, struct.pack("<d", value)
    if isinstance(value, complex):
        return complex, struct.pack("<dd", value.real, value.imag)
    if isinstance(value, tuple):
        return tuple, tuple(map(_constant_key, value))
    if isinstance(value, frozenset):
        return frozenset, frozenset(map(_constant_key, value))
    if isinstance(value, int | str | bytes) or value is None or value is Ellipsis:
        return type(value), value
    return type(value), id(value)
