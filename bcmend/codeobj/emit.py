"""Building blocks of new code, in the canonical form of the running CPython.

Each function returns a tuple of instructions that does one thing, however this version of CPython
spells it: where the NULL of a call goes, how a closure is attached, whether a condition has to be
made a bool first. ``location`` is given to every instruction made; without one, an instruction
takes the location of the instruction before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import CodeType
from typing import TypeVar

from bytecode import Compare

from bcmend.codeobj import behavior
from bcmend.codeobj.decode import Instruction, Label, Location, Shape

Instructions = tuple[Instruction, ...]
#: An instruction, or a label of jumps among those that push an argument.
Operand = TypeVar("Operand")

#: Bit that says, in MAKE_FUNCTION or SET_FUNCTION_ATTRIBUTE, that a tuple of cells is given.
_CLOSURE_FLAG = 8


def _one(op: str, arg: object, location: Location | None) -> Instructions:
    return (Instruction(op, arg, location=location),)


def load_global(name: str, location: Location | None = None) -> Instructions:
    """Push the global or builtin ``name``."""
    return _one("LOAD_GLOBAL", (False, name), location)


def load_const(value: object, location: Location | None = None) -> Instructions:
    """Push ``value``."""
    return _one("LOAD_CONST", value, location)


def load_local(
    name: str, location: Location | None = None, *, may_be_unbound: bool = False
) -> Instructions:
    """Push the local ``name``; it has to be bound, unless ``may_be_unbound`` asks for a check.

    With the check, an unbound local raises UnboundLocalError, as it does in ordinary code.
    """
    checked = may_be_unbound and behavior.LOAD_FAST_MUST_BE_BOUND
    return _one("LOAD_FAST_CHECK" if checked else "LOAD_FAST", name, location)


def store_local(name: str, location: Location | None = None) -> Instructions:
    """Pop a value into the local ``name``."""
    return _one("STORE_FAST", name, location)


def delete_local(name: str, location: Location | None = None) -> Instructions:
    """Unbind the local ``name``, which has to be bound."""
    return _one("DELETE_FAST", name, location)


def load_cell(name: str, location: Location | None = None) -> Instructions:
    """Push what the cell or free variable ``name`` holds."""
    return _one("LOAD_DEREF", name, location)


def store_cell(name: str, location: Location | None = None) -> Instructions:
    """Pop a value into the cell or free variable ``name``."""
    return _one("STORE_DEREF", name, location)


def load_closure(name: str, location: Location | None = None) -> Instructions:
    """Push the cell ``name`` itself."""
    return _one("LOAD_CLOSURE", name, location)


def load_attribute(name: str, location: Location | None = None) -> Instructions:
    """Replace the top operand by its attribute ``name``."""
    arg = name if behavior.HAS_LOAD_METHOD else (False, name)
    return _one("LOAD_ATTR", arg, location)


def call_value(
    load_callable: Sequence[Instruction],
    arguments: Sequence[Sequence[Operand]],
    location: Location | None = None,
) -> tuple[Instruction | Operand, ...]:
    """Call what ``load_callable`` pushes with positional arguments; push the result.

    Args:
        load_callable: instructions that push the callable, and nothing else.
        arguments: for each argument, instructions that push it.
        location: of the instructions that make up the call itself.
    """
    null = _one("PUSH_NULL", None, location)
    pushes_callable = (
        (*null, *load_callable) if behavior.NULL_BEFORE_CALLABLE else (*load_callable, *null)
    )
    pushes_arguments = (each for argument in arguments for each in argument)
    return (*pushes_callable, *pushes_arguments, *_one("CALL", len(arguments), location))


def call_global(
    function_path: Sequence[str],
    arguments: Sequence[Sequence[Operand]],
    location: Location | None = None,
) -> tuple[Instruction | Operand, ...]:
    """Call the global ``function_path[0]``, or an attribute of it that the rest of the path names.

    Args:
        function_path: a global name, then attribute names; at least the first.
        arguments: for each positional argument, instructions that push it.
        location: of all instructions but those of the arguments.
    """
    name, *attributes = function_path
    load_callable = list(load_global(name, location))
    for attribute in attributes:
        load_callable.extend(load_attribute(attribute, location))
    return call_value(load_callable, arguments, location)


def push_null(location: Location | None = None) -> Instructions:
    """Push the NULL that a call takes in place of a missing ``self``."""
    return _one("PUSH_NULL", None, location)


def call_over_null(function_path: Sequence[str], location: Location | None = None) -> Instructions:
    """Call a global, or an attribute of one, with the NULL that is on the stack already."""
    name, *attributes = function_path
    load = list(load_global(name, location))
    for attribute in attributes:
        load.extend(load_attribute(attribute, location))
    order = () if behavior.NULL_BEFORE_CALLABLE else swap(2, location)
    return (*load, *order, *_one("CALL", 0, location))


def make_function(
    code: CodeType, closure_names: Sequence[str] = (), location: Location | None = None
) -> Instructions:
    """Push a new function of ``code``.

    Args:
        code: what the function runs.
        closure_names: cells of the function that makes it, in the order of ``code.co_freevars``.
        location: of all instructions.
    """
    cells = tuple(each for name in closure_names for each in load_closure(name, location))
    if cells:
        cells += build_tuple(len(closure_names), location)
    load_code = load_const(code, location)
    if behavior.FUNCTION_ATTRIBUTES_ARE_SET_AFTER:
        make = _one("MAKE_FUNCTION", None, location)
        if cells:
            make += _one("SET_FUNCTION_ATTRIBUTE", _CLOSURE_FLAG, location)
    else:
        make = _one("MAKE_FUNCTION", _CLOSURE_FLAG if cells else 0, location)
    return (*cells, *load_code, *make)


def prologue(shape: Shape, location: Location | None = None) -> Instructions:
    """Return what every plain function begins with: its free variables, its cells, RESUME."""
    copies: Instructions = ()
    if shape.freevars:
        copies = _one("COPY_FREE_VARS", len(shape.freevars), location)
    cells = (Instruction("MAKE_CELL", name, location=location) for name in shape.cellvars)
    return (*copies, *cells, *_one("RESUME", 0, location))


def build_tuple(count: int, location: Location | None = None) -> Instructions:
    """Replace the top ``count`` operands by a tuple of them, the deepest first."""
    return _one("BUILD_TUPLE", count, location)


def unpack_sequence(count: int, location: Location | None = None) -> Instructions:
    """Replace a sequence by its ``count`` items, the first on top."""
    return _one("UNPACK_SEQUENCE", count, location)


def jump(label: Label, location: Location | None = None) -> Instructions:
    """Go on at ``label``."""
    return (Instruction("JUMP", None, label, location=location),)


def jump_if_false(label: Label, location: Location | None = None) -> Instructions:
    """Pop a value, and go on at ``label`` if it is false."""
    return _jump_on_truth("POP_JUMP_IF_FALSE", label, location)


def jump_if_true(label: Label, location: Location | None = None) -> Instructions:
    """Pop a value, and go on at ``label`` if it is true."""
    return _jump_on_truth("POP_JUMP_IF_TRUE", label, location)


def _jump_on_truth(op: str, label: Label, location: Location | None) -> Instructions:
    test = _one("TO_BOOL", None, location) if behavior.HAS_TO_BOOL else ()
    return (*test, Instruction(op, None, label, location=location))


def jump_if_none(label: Label, location: Location | None = None) -> Instructions:
    """Pop a value, and go on at ``label`` if it is ``None``."""
    return (Instruction("POP_JUMP_IF_NONE", None, label, location=location),)


def jump_if_not_none(label: Label, location: Location | None = None) -> Instructions:
    """Pop a value, and go on at ``label`` if it is not ``None``."""
    return (Instruction("POP_JUMP_IF_NOT_NONE", None, label, location=location),)


def return_value(location: Location | None = None) -> Instructions:
    """Return the top operand."""
    return _one("RETURN_VALUE", None, location)


def raise_again(location: Location | None = None) -> Instructions:
    """Raise the exception that a handler was given, without another entry in its traceback."""
    return _one("RERAISE", 0, location)


def pop_top(location: Location | None = None) -> Instructions:
    """Drop the top operand."""
    return _one("POP_TOP", None, location)


def swap(depth: int, location: Location | None = None) -> Instructions:
    """Exchange the top operand with the one at ``depth``, counted from 1 at the top."""
    return _one("SWAP", depth, location)


def copy(depth: int, location: Location | None = None) -> Instructions:
    """Push the operand at ``depth``, counted from 1 at the top, once more."""
    return _one("COPY", depth, location)


def equal(location: Location | None = None) -> Instructions:
    """Replace the top two operands by whether they are equal."""
    return _one("COMPARE_OP", Compare.EQ, location)


def as_condition(location: Location | None = None) -> Instructions:
    """Make the top operand what a conditional jump takes: a bool, where the version wants one."""
    return _one("TO_BOOL", None, location) if behavior.HAS_TO_BOOL else ()


def without_cast(instruction: Instruction) -> Instruction:
    """Return a comparison that leaves its result as it is, where the version can fuse a cast."""
    if instruction.op != "COMPARE_OP" or not behavior.COMPARE_OP_CARRIES_BOOL:
        return instruction
    plain = Compare[instruction.arg.name.removesuffix("_CAST")]
    return replace(instruction, arg=plain)
