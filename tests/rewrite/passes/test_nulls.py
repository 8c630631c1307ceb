"""Loads that push a NULL beside a callable, and what they are split into."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import pytest

from bcmend.bytecode import behavior
from bcmend.bytecode.assemble import assemble, labelled
from bcmend.bytecode.decode import decode
from bcmend.bytecode.instructions import FunctionCode, Instruction, Location, TryRange
from bcmend.rewrite.passes.nulls import may_push_null, pushes_null, with_explicit_nulls
from tests.listing import listing, shape_of

METHOD = (
    Instruction("LOAD_METHOD", "real")
    if behavior.HAS_LOAD_METHOD
    else Instruction("LOAD_ATTR", (True, "real"))
)
PLAIN = (
    Instruction("LOAD_ATTR", "real")
    if behavior.HAS_LOAD_METHOD
    else Instruction("LOAD_ATTR", (False, "real"))
)


def test_loads_with_a_null_push_two_operands() -> None:
    assert pushes_null(METHOD) and pushes_null(Instruction("LOAD_GLOBAL", (True, "f")))
    assert not pushes_null(PLAIN) and not pushes_null(Instruction("LOAD_GLOBAL", (False, "f")))
    assert not pushes_null(Instruction("PUSH_NULL")) and not pushes_null(Instruction("POP_TOP"))


def test_instructions_that_may_push_a_null() -> None:
    saves = Instruction("LOAD_FAST_AND_CLEAR", "x")
    for instruction in (METHOD, Instruction("PUSH_NULL"), saves):
        assert may_push_null(instruction)
    assert not may_push_null(PLAIN) and not may_push_null(Instruction("LOAD_CONST", ("a",)))
    assert not may_push_null(Instruction("LOAD_CONST", (True, "a")))  # no flag and a name
    assert not may_push_null(Instruction("LOAD_CONST", (1.0, 2.0)))


def test_a_global_is_split_into_the_order_of_a_call() -> None:
    load = Instruction("LOAD_GLOBAL", (True, "f"), None, 6, Location(2, 2, 0, 1))
    rest = listing("CALL 0\nRETURN_VALUE").function.instructions
    function = FunctionCode(shape_of(), (load, *rest), ())
    found = with_explicit_nulls(function, [0]).instructions
    null = Instruction("PUSH_NULL", None, None, 6, Location(2, 2, 0, 1))
    plain = Instruction("LOAD_GLOBAL", (False, "f"), None, 6, Location(2, 2, 0, 1))
    expected = (null, plain) if behavior.NULL_BEFORE_CALLABLE else (plain, null)
    assert found == (*expected, *rest)


def test_targets_and_ranges_follow() -> None:
    load = Instruction("LOAD_GLOBAL", (True, "f"))
    rest = listing("CALL 0\nPOP_TOP\nJUMP -> a\na:\nRETURN_CONST 1\nPOP_TOP\nRETURN_CONST 2")
    shifted = tuple(
        each if each.target is None else Instruction(each.op, None, each.target + 1)
        for each in rest.function.instructions
    )
    function = FunctionCode(shape_of(), (load, *shifted), (TryRange(0, 2, 5, 0, False),))
    found = with_explicit_nulls(function, [0])
    assert found.instructions[4].target == 5
    assert found.tries == (TryRange(0, 3, 6, 0, False),)


def _calls_functions_and_methods(x: list[int]) -> Any:
    return len(x), x.count(1), str(sorted(x, reverse=True)).upper().lower()


def _calls_a_method_on_each_path(x: list[int]) -> Any:
    for each in x:
        if each.bit_length() > 1:
            return max(x).bit_length()
    return x.copy()


@pytest.mark.parametrize(
    "function",
    [_calls_functions_and_methods, _calls_a_method_on_each_path],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("x", [[1, 0, 1], [3, 9], []])
def test_split_loads_do_the_same(function: FunctionType, x: list[int]) -> None:
    decoded = decode(function.__code__)
    loads = [index for index, each in enumerate(decoded.instructions) if pushes_null(each)]
    split = with_explicit_nulls(decoded, loads)
    assert len(split.instructions) > len(decoded.instructions)
    assert not any(map(pushes_null, split.instructions))
    code = assemble(split.shape, *labelled(split))
    assert FunctionType(code, {})(x) == function(x)


def test_only_the_given_loads_are_split() -> None:
    decoded = decode(_calls_functions_and_methods.__code__)
    assert with_explicit_nulls(decoded, []) == decoded
