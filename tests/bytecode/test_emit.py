"""Building blocks: each is assembled and run."""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType, FunctionType
from typing import Any

import pytest

from bcmend.bytecode import behavior, emit
from bcmend.bytecode.assemble import Item, assemble
from bcmend.bytecode.decode import decode
from bcmend.bytecode.instructions import Instruction, Label, Location
from tests.listing import shape_of


def run(items: Sequence[Item], *values: object, names: Sequence[str] = (), **changes: Any) -> Any:
    """Run instructions as the body of a function of arguments ``names``."""
    shape = shape_of(tuple(names), **changes)
    code = assemble(shape, [*emit.prologue(shape), *items], [])
    return FunctionType(code, {"__builtins__": __builtins__, "math": __import__("math")})(*values)


def test_constants_locals_and_return() -> None:
    items = [*emit.load_const((1, "two")), *emit.store_local("made"), *emit.load_local("made")]
    assert run([*items, *emit.return_value()]) == (1, "two")


def test_unbound_local_is_checked_where_asked() -> None:
    jump_over = Label()
    items = [
        *emit.load_local("flag"),
        *emit.jump_if_false(jump_over),
        *emit.load_const(1),
        *emit.store_local("maybe"),
        jump_over,
        *emit.load_local("maybe", may_be_unbound=True),
        *emit.return_value(),
    ]
    assert run(items, True, names=["flag"]) == 1
    with pytest.raises(UnboundLocalError, match="maybe"):
        run(items, False, names=["flag"])


def test_call_global_through_attributes_with_nested_calls() -> None:
    inner = emit.call_global(["len"], [emit.load_local("a")])
    items = emit.call_global(["math", "pow"], [inner, emit.load_const(2)])
    assert run([*items, *emit.return_value()], "abc", names=["a"]) == 9.0


def test_call_value() -> None:
    items = emit.call_value(emit.load_local("a"), [emit.load_const(3), emit.load_const(4)])
    assert run([*items, *emit.return_value()], lambda x, y: (y, x), names=["a"]) == (4, 3)


def test_call_is_spelled_as_the_compiler_spells_it() -> None:
    def compiled(f):
        return f()

    made = [each.op for each in emit.call_value(emit.load_local("f"), [])]
    assert [each.op for each in decode(compiled.__code__).instructions][1:-1] == made


def test_attribute() -> None:
    items = [*emit.load_local("a"), *emit.load_attribute("imag"), *emit.return_value()]
    assert run(items, 3 + 4j, names=["a"]) == 4.0


def inner_code() -> CodeType:
    captured = 5

    def inner(b):
        return captured * b

    return inner.__code__


def test_function_with_closure_shares_the_cell() -> None:
    items = [
        *emit.load_local("a"),
        Instruction("STORE_DEREF", "captured"),
        *emit.make_function(inner_code(), ["captured"]),
        *emit.store_local("made"),
        *emit.load_const(7),
        Instruction("STORE_DEREF", "captured"),
        *emit.call_value(emit.load_local("made"), [emit.load_const(2)]),
        *emit.load_cell("captured"),
        *emit.build_tuple(2),
        *emit.return_value(),
    ]
    assert run(items, 1, names=["a"], cellvars=("captured",)) == (14, 7)


def test_function_without_closure() -> None:
    code = (lambda: 11).__code__
    items = emit.call_value(emit.make_function(code), [])
    assert run([*items, *emit.return_value()]) == 11


def test_closure_is_what_the_compiler_would_load() -> None:
    def compiled(a):
        return lambda: a

    nested = next(each for each in compiled.__code__.co_consts if isinstance(each, CodeType))
    made = [(each.op, each.arg) for each in emit.make_function(nested, ["a"])]
    decoded = [(each.op, each.arg) for each in decode(compiled.__code__).instructions]
    first = decoded.index(("LOAD_CLOSURE", "a"))
    assert decoded[first : first + len(made)] == made


@pytest.mark.parametrize(
    ("jump", "going"),
    [
        (emit.jump_if_true, [True, 1, "x"]),
        (emit.jump_if_false, [False, 0, "", None]),
        (emit.jump_if_none, [None]),
    ],
)
def test_conditional_jumps(jump: Any, going: list[object]) -> None:
    there = Label()
    items = [
        *emit.load_local("a"),
        *jump(there),
        *emit.load_const("stayed"),
        *emit.return_value(),
        there,
        *emit.load_const("gone"),
        *emit.return_value(),
    ]
    for value in (True, 1, "x", False, 0, "", None):
        # Membership by identity, since True equals 1.
        expected = "gone" if any(value is each for each in going) else "stayed"
        assert run(items, value, names=["a"]) == expected


def test_condition_is_made_a_bool_where_jumps_want_one() -> None:
    made = [each.op for each in emit.jump_if_true(Label())]
    assert made == (["TO_BOOL"] if behavior.HAS_TO_BOOL else []) + ["POP_JUMP_IF_TRUE"]


def test_stack_operations() -> None:
    items = [
        *emit.load_const(1),
        *emit.load_const(2),
        *emit.load_const(3),
        *emit.swap(3),  # 3 2 1
        *emit.copy(2),  # 3 2 1 2
        *emit.build_tuple(4),
        *emit.unpack_sequence(4),  # 2 1 2 3, first on top
        *emit.pop_top(),
        *emit.build_tuple(3),
        *emit.return_value(),
    ]
    assert run(items) == (2, 1, 2)


def test_unconditional_jump() -> None:
    end = Label()
    items = [*emit.load_const(1), *emit.jump(end), *emit.load_const(2), end, *emit.return_value()]
    items.insert(3, Instruction("POP_TOP"))
    assert run(items) == 1


def test_locations_are_given_to_all_instructions() -> None:
    location = Location(7, 7, 1, 2)
    made = [
        *emit.call_global(["a", "b"], [], location),
        *emit.make_function(inner_code(), ["captured"], location),
        *emit.jump_if_false(Label(), location),
        *emit.prologue(shape_of(cellvars=("c",), freevars=("d",)), location),
    ]
    assert {each.location for each in made} == {location}


@pytest.mark.parametrize("block", [emit.pop_top, emit.push_null, emit.return_value, emit.equal])
def test_a_fixed_block_is_one_instruction_with_a_location_if_one_is_given(block: Any) -> None:
    here = Location(7, 7, 1, 2)
    (without,), (located,) = block(), block(here)
    assert without.location is None and located.location == here
    assert (without.op, without.arg) == (located.op, located.arg)


@pytest.mark.parametrize("block", [emit.load_const, emit.swap, emit.build_tuple, emit.copy])
def test_a_block_with_an_argument_is_one_instruction_with_it(block: Any) -> None:
    here = Location(7, 7, 1, 2)
    assert [(each.arg, each.location) for each in (*block(2), *block(3, here))] == [
        (2, None),
        (3, here),
    ]


def test_a_call_takes_the_null_that_is_on_the_stack() -> None:
    items = [*emit.push_null(), *emit.call_over_null(["dict"]), *emit.return_value()]
    assert run(items) == {}
