"""Shapes, try ranges and targets of canonical code."""

from __future__ import annotations

import inspect
from types import FunctionType

import pytest

from bcmend.bytecode.instructions import (
    DecodeError,
    Instruction,
    Label,
    TryRange,
    UnknownOpcode,
    argument_count,
    decoded_index,
    retargeted,
)
from tests.listing import shape_of


def test_an_index_is_itself_and_a_label_is_refused() -> None:
    assert decoded_index(3) == 3
    with pytest.raises(TypeError, match="not an index"):
        decoded_index(Label("end"))


def test_an_unknown_opcode_is_a_decode_error_and_a_value_error() -> None:
    assert issubclass(UnknownOpcode, DecodeError) and issubclass(DecodeError, ValueError)


def test_labels_are_compared_by_identity() -> None:
    one, other = Label("same"), Label("same")
    assert one != other and len({one, other}) == 2
    assert repr(one) == "<Label same>" and "0x" in repr(Label())


def test_a_range_covers_its_start_but_not_its_end() -> None:
    entry = TryRange(2, 5, 9, 1, True)
    assert entry.bounds == (2, 5)
    assert [index for index in range(8) if entry.covers(index)] == [2, 3, 4]
    assert not TryRange(2, 2, 9, 0, False).covers(2)


def test_a_range_between_labels_has_no_bounds() -> None:
    entry = TryRange(Label("start"), 5, 9, 1, True)
    with pytest.raises(TypeError):
        entry.covers(3)


def test_a_moved_range_keeps_depth_and_lasti() -> None:
    entry = TryRange(2, 5, 9, 1, True)
    assert entry.moved(lambda place: decoded_index(place) + 10) == TryRange(12, 15, 19, 1, True)


def test_only_jumps_are_retargeted() -> None:
    there = Label("there")
    instructions = [Instruction("NOP"), Instruction("JUMP", None, 4, 8)]
    assert retargeted(instructions, lambda target: there) == (
        Instruction("NOP"),
        Instruction("JUMP", None, there, 8),
    )


def test_a_function_of_a_part_has_the_given_arguments_alone() -> None:
    whole = shape_of(
        ("self", "x"),
        posonlyargcount=1,
        kwonlyargcount=1,
        flags=inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS | inspect.CO_GENERATOR,
        varnames=("self", "x", "y"),
        cellvars=("x",),
        freevars=("z",),
        docstring="text",
    )
    part = whole.of_part(("a", "b"), ("x",))
    assert part.argnames == part.varnames == ("a", "b")
    assert (part.argcount, part.posonlyargcount, part.kwonlyargcount) == (2, 0, 0)
    assert part.cellvars == () and part.freevars == ("x",) and part.docstring is None
    assert part.flags == inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS | inspect.CO_NESTED
    assert (part.name, part.filename, part.first_lineno) == ("f", "listing.py", 1)


def test_a_function_of_a_part_without_free_variables_is_not_nested() -> None:
    assert shape_of().of_part((), ()).flags == inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS


def test_flattened_arguments_are_positional_and_end_with_the_given_one() -> None:
    flags = inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS
    whole = shape_of(
        ("a", "b", "c", "args", "kwargs"),
        argcount=2,
        posonlyargcount=1,
        kwonlyargcount=1,
        flags=flags | inspect.CO_VARARGS | inspect.CO_VARKEYWORDS,
        varnames=("a", "b", "c", "args", "kwargs", "local"),
        cellvars=("b",),
    )
    flat = whole.flattened("buffer")
    assert flat.argnames == ("a", "b", "c", "args", "kwargs", "buffer")
    assert flat.varnames == (*flat.argnames, "local")
    assert (flat.argcount, flat.posonlyargcount, flat.kwonlyargcount) == (6, 0, 0)
    assert flat.flags == flags and flat.cellvars == ("b",)


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (lambda: 0, 0),
        (lambda a, /, b, *, c: 0, 3),
        (lambda *a, b: 0, 2),
        (lambda a, *b, c, **d: 0, 4),
        (lambda **a: 0, 1),
    ],
)
def test_gathering_arguments_count(function: FunctionType, count: int) -> None:
    code = function.__code__
    found = argument_count(code.co_argcount, code.co_kwonlyargcount, code.co_flags)
    assert found == count == len(code.co_varnames)
