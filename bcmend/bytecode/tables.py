"""Convert canonical arguments to the raw numbers that stand for them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final

from bcmend.bytecode.decode import ENUMERATIONS, slot_names
from bcmend.bytecode.instructions import AssembleError, Instruction, Shape
from bcmend.bytecode.opcodes import row

_RAW_MEMBERS: Final = {
    kind: {member: raw for raw, member in table.items()} for kind, table in ENUMERATIONS.items()
}


@dataclass(frozen=True, slots=True)
class Tables:
    """Constants, names and slots of the code being assembled; grows only while it is made."""

    constants: dict[object, int]
    constant_values: list[object]
    constant_places: dict[int, int]  # by identity: making the key of a constant takes longer
    names: dict[str, int]
    varnames: tuple[str, ...]
    locals: dict[str, int]
    cells: dict[str, int]

    @classmethod
    def of(cls, shape: Shape, instructions: Sequence[Instruction]) -> Tables:
        """Return the tables of what ``instructions`` name, after what ``shape`` puts first."""
        others = {*shape.cellvars, *shape.freevars} - set(shape.varnames)
        local_names = dict.fromkeys(shape.varnames)
        for each in instructions:
            if row(each.op).argument == "local":
                if not isinstance(each.arg, str):
                    raise AssembleError(f"{each.op} cannot have the argument {each.arg!r}")
                if each.arg not in others:
                    local_names[each.arg] = None
        varnames = tuple(local_names)
        tables = cls({}, [], {}, {}, varnames, *_slots(shape, varnames))
        # The first constant is the docstring if it is a string, so something has to be there.
        tables.constant(shape.docstring)
        return tables

    @classmethod
    def of_code(cls, shape: Shape, code: CodeType) -> Tables:
        """Return the tables of ``code``, with each entry at the index that it has there."""
        names = {name: index for index, name in enumerate(code.co_names)}
        places = {id(value): index for index, value in enumerate(code.co_consts)}
        varnames = shape.varnames
        return cls({}, list(code.co_consts), places, names, varnames, *_slots(shape, varnames))

    def constant(self, value: object) -> int:
        """Return the index of ``value``, which is added if it is new."""
        place = self.constant_places.get(id(value))
        if place is None:
            place = self.constants.setdefault(_constant_key(value), len(self.constant_values))
            if place == len(self.constant_values):
                self.constant_values.append(value)
                # Of stored constants alone: another that is equal may be freed, and its id reused.
                self.constant_places[id(value)] = place
        return place

    def name(self, name: str) -> int:
        """Return the index of ``name``, which is added if it is new."""
        if type(name) is not str:
            raise TypeError(name)
        return self.names.setdefault(name, len(self.names))

    def raw(self, instruction: Instruction) -> int:
        """Return the number that stands for the argument of ``instruction``; 0 if it has none."""
        kind, arg = row(instruction.op).argument, instruction.arg
        try:
            if kind == "local":
                return self.locals[arg]
            if kind == "const":
                return self.constant(arg)
            if kind == "none":
                return 0
            return self._other(kind, arg)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise AssembleError(f"{instruction.op} cannot have the argument {arg!r}") from error

    def _other(self, kind: str, arg: Any) -> int:
        if kind == "int":
            return int(arg)
        if kind == "name":
            return self.name(arg)
        if kind == "flagged_name":
            flag, name = arg
            return self.name(name) << 1 | bool(flag)
        if kind == "super":
            method, two_arguments, name = arg
            return self.name(name) << 2 | bool(two_arguments) << 1 | bool(method)
        if kind == "cell":
            return self.cells[arg]
        return _RAW_MEMBERS[kind][arg]


def _slots(shape: Shape, local_names: tuple[str, ...]) -> tuple[dict[str, int], dict[str, int]]:
    """Return the slots of locals, and those of cells and free variables."""
    slots = slot_names(local_names, shape.cellvars, shape.freevars)
    places = {name: index for index, name in reversed(list(enumerate(slots)))}
    # A free variable can share its name with the local of an inlined comprehension.
    cells = {name: places[name] for name in shape.cellvars}
    first_free = len(slots) - len(shape.freevars)
    cells.update({name: first_free + index for index, name in enumerate(shape.freevars)})
    return places, cells


def _constant_key(value: object) -> object:
    """Return a key that is equal only for constants that no program can distinguish."""
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
