"""Building blocks of new code, in the canonical form of the running CPython.

Each block is called for a tuple of instructions that does one thing, however this CPython spells
it: where the NULL of a call goes, how a closure is attached, whether a condition is made a bool.
All of the instructions get ``location``; without one they take that of the instruction before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Final, Generic, TypeVar

from bytecode import Compare

from bcmend.bytecode import behavior
from bcmend.bytecode.instructions import Instruction, Label, Location, Shape

Instructions = tuple[Instruction, ...]
#: An instruction, or a label of jumps among those that push an argument.
Operand = TypeVar("Operand")
Argument = TypeVar("Argument")

#: Bit that says, in MAKE_FUNCTION or SET_FUNCTION_ATTRIBUTE, that a tuple of cells is given.
_CLOSURE_FLAG = 8


@dataclass(frozen=True)
class _Fixed:
    """A block of one instruction, always with the same argument."""

    op: str
    arg: object = None

    def __call__(self, location: Location | None = None) -> Instructions:
        return (Instruction(self.op, self.arg, location=location),)


@dataclass(frozen=True)
class _Taking(Generic[Argument]):
    """A block of one instruction with the argument that the block is given."""

    op: str

    def __call__(self, arg: Argument, location: Location | None = None) -> Instructions:
        return (Instruction(self.op, arg, location=location),)


load_const: Final = _Taking[object]("LOAD_CONST")
store_local: Final = _Taking[str]("STORE_FAST")
delete_local: Final = _Taking[str]("DELETE_FAST")
load_cell: Final = _Taking[str]("LOAD_DEREF")
_load_closure: Final = _Taking[str]("LOAD_CLOSURE")  # the cell itself
build_tuple: Final = _Taking[int]("BUILD_TUPLE")  # of the topmost operands, the deepest first
unpack_sequence: Final = _Taking[int]("UNPACK_SEQUENCE")  # the first item comes to lie on top
swap: Final = _Taking[int]("SWAP")  # the top operand with one counted from 1 at the top
copy: Final = _Taking[int]("COPY")  # the operand counted from 1 at the top
_call: Final = _Taking[int]("CALL")

nothing: Final = _Fixed("NOP")
pop_top: Final = _Fixed("POP_TOP")
push_null: Final = _Fixed("PUSH_NULL")  # what a call takes in place of a missing ``self``
equal: Final = _Fixed("COMPARE_OP", Compare.EQ)
return_value: Final = _Fixed("RETURN_VALUE")
raise_value: Final = _Fixed("RAISE_VARARGS", 1)
raise_again: Final = _Fixed("RERAISE", 0)  # adds no entry to the traceback
negate: Final = _Fixed("UNARY_NOT")  # what is true becomes False
_to_bool: Final = _Fixed("TO_BOOL")


def load_global(name: str, location: Location | None = None) -> Instructions:
    """Push the global or builtin ``name``."""
    return (Instruction("LOAD_GLOBAL", (False, name), location=location),)


def load_local(
    name: str, location: Location | None = None, *, may_be_unbound: bool = False
) -> Instructions:
    """Push the local ``name``; unless ``may_be_unbound`` asks for a check, it has to be bound."""
    checked = may_be_unbound and behavior.LOAD_FAST_MUST_BE_BOUND
    return (Instruction("LOAD_FAST_CHECK" if checked else "LOAD_FAST", name, location=location),)


def load_attribute(name: str, location: Location | None = None) -> Instructions:
    """Replace the top operand by its attribute ``name``."""
    arg = name if behavior.HAS_LOAD_METHOD else (False, name)
    return (Instruction("LOAD_ATTR", arg, location=location),)


def call_value(
    load_callable: Sequence[Instruction],
    arguments: Sequence[Sequence[Operand]],
    location: Location | None = None,
) -> tuple[Instruction | Operand, ...]:
    """Call what ``load_callable`` pushes with positional arguments, which are pushed after it."""
    null = push_null(location)
    pushes_callable = (
        (*null, *load_callable) if behavior.NULL_BEFORE_CALLABLE else (*load_callable, *null)
    )
    pushes_arguments = (each for argument in arguments for each in argument)
    return (*pushes_callable, *pushes_arguments, *_call(len(arguments), location))


def call_global(
    path: Sequence[str], arguments: Sequence[Sequence[Operand]], location: Location | None = None
) -> tuple[Instruction | Operand, ...]:
    """Call the global ``path[0]``, or the attribute of it that the rest of the path names."""
    return call_value(_load_path(path, location), arguments, location)


def call_over_null(path: Sequence[str], location: Location | None = None) -> Instructions:
    """Call a global, or an attribute of one, with the NULL that is on the stack already."""
    order = () if behavior.NULL_BEFORE_CALLABLE else swap(2, location)
    return (*_load_path(path, location), *order, *_call(0, location))


def _load_path(path: Sequence[str], location: Location | None) -> Instructions:
    name, *attributes = path
    loads = (each for attribute in attributes for each in load_attribute(attribute, location))
    return (*load_global(name, location), *loads)


def make_function(
    code: CodeType, closure_names: Sequence[str] = (), location: Location | None = None
) -> Instructions:
    """Push a new function of ``code``; ``closure_names`` are in the order of its free variables."""
    cells = tuple(each for name in closure_names for each in _load_closure(name, location))
    if cells:
        cells += build_tuple(len(closure_names), location)
    flags = _CLOSURE_FLAG if cells else 0
    set_after = behavior.FUNCTION_ATTRIBUTES_ARE_SET_AFTER
    make: Instructions = (
        Instruction("MAKE_FUNCTION", None if set_after else flags, location=location),
    )
    if cells and set_after:
        make += (Instruction("SET_FUNCTION_ATTRIBUTE", flags, location=location),)
    return (*cells, *load_const(code, location), *make)


def prologue(shape: Shape, location: Location | None = None) -> Instructions:
    """Return what every plain function begins with: its free variables, its cells, RESUME."""
    free = len(shape.freevars)
    copies = [Instruction("COPY_FREE_VARS", free, location=location)] if free else []
    cells = (Instruction("MAKE_CELL", name, location=location) for name in shape.cellvars)
    return (*copies, *cells, Instruction("RESUME", 0, location=location))


def jump(label: int | Label, location: Location | None = None) -> Instructions:
    """Jump to ``label``, or to the instruction at an index."""
    return (Instruction("JUMP", None, label, location=location),)


def jump_if_false(label: int | Label, location: Location | None = None) -> Instructions:
    """Pop a value; jump to ``label`` if it is false."""
    test = Instruction("POP_JUMP_IF_FALSE", None, label, location=location)
    return (*as_condition(location), test)


def jump_if_true(label: int | Label, location: Location | None = None) -> Instructions:
    """Pop a value; jump to ``label`` if it is true."""
    test = Instruction("POP_JUMP_IF_TRUE", None, label, location=location)
    return (*as_condition(location), test)


def jump_if_none(label: Label, location: Location | None = None) -> Instructions:
    """Pop a value; jump to ``label`` if it is ``None``."""
    return (Instruction("POP_JUMP_IF_NONE", None, label, location=location),)


def is_none(location: Location | None = None) -> Instructions:
    """Pop a value; push whether it is ``None``."""
    return (*load_const(None, location), Instruction("IS_OP", 0, location=location))


def as_condition(location: Location | None = None) -> Instructions:
    """Make the top operand a bool, where this version's conditional jumps need one."""
    return _to_bool(location) if behavior.HAS_TO_BOOL else ()


def without_cast(instruction: Instruction) -> Instruction:
    """Return a comparison that leaves its result as it is, where the version can fuse a cast."""
    if instruction.op != "COMPARE_OP" or not behavior.COMPARE_OP_CARRIES_BOOL:
        return instruction
    return instruction._replace(arg=Compare[instruction.arg.name.removesuffix("_CAST")])
