"""Code of newer Pythons in the form that older compilers write: the same results, one shape."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any

import pytest

from bcmend.bytecode import behavior
from bcmend.bytecode.assemble import assemble, labelled
from bcmend.bytecode.decode import decode
from bcmend.bytecode.instructions import Instruction
from bcmend.bytecode.opcodes import COMMON_CONSTANTS, TRUTH_JUMPS
from bcmend.rewrite.passes.common_form import in_common_form, inlines_builtins
from tests.stand_ins import with_code


def _while_one(a, b):
    while a < b:
        a = a + 3
    return a


def _while_two(a, b):
    n = 0
    while a < b and n < 5:
        n += 1
        if a == 3:
            a = 7
            continue
        a = a + 1
    return a, n


def _while_either(a, b):
    while a < b or a % 5:
        a += 1
    return a


def _while_many(a, b):
    n = 0
    while (a < b and n < 3) or not (a % 4 or n > 9):
        a, n = a + 1, n + 1
    return a, n


def _while_chained(a, b):
    while 0 <= a < b:
        a += 2
    return a


def _while_chosen(a, b):
    while a < b if b > 3 else a < 2:
        a += 1
    return a


def _while_else(a, b):
    while not a > b:
        a += 1
        if a == 4:
            break
    else:
        return "else", a
    return "left", a


def _while_true(a, b):
    while True:
        if a > b:
            break
        a += 1
    return a


def _while_named(a, b):
    found = []
    while (c := a) < b:
        found.append(c)
        a += 2
    return found


def _while_in_while(a, b):
    total = 0
    while a < b:
        c = a
        while c < b:
            c += 1
            total += c
        a += 1
    return total


def _while_in_try(a, b):
    try:
        while b / a > 1:
            a -= 1
        return "none", a
    except ZeroDivisionError:
        return "caught", a


def _test_in_try_alone(a, b):
    while a > 0:
        try:
            a -= 1 + 0 * (b // (a - 1))
        except ZeroDivisionError:
            return "caught"
    return a


def _builtins(a, b):
    one = any(c > a for c in range(b))
    other = all(c > a for c in range(1, b))
    return (
        one,
        other,
        tuple(c for c in range(b) if c != a),
        [any(d for d in range(c)) for c in (0, 2)],
    )


def _renamed(a, b):
    any = lambda found: ("mine", *found)  # noqa: E731
    return any(c for c in range(b))


PROGRAMS = [
    _while_one,
    _while_two,
    _while_either,
    _while_many,
    _while_chained,
    _while_chosen,
    _while_else,
    _while_true,
    _while_named,
    _while_in_while,
    _while_in_try,
    _test_in_try_alone,
    _builtins,
    _renamed,
]
ARGUMENTS = [(a, b) for a in range(-2, 6) for b in (0, 1, 4, 9)]


def _outcome(function: Callable[..., Any], a: int, b: int) -> object:
    try:
        return function(a, b)
    except ArithmeticError as error:
        return type(error)


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_does_what_the_code_does(program: Callable[..., Any]) -> None:
    function = in_common_form(program.__code__)
    again = with_code(program, assemble(function.shape, *labelled(function)), {})
    for a, b in ARGUMENTS:
        assert _outcome(again, a, b) == _outcome(program, a, b), (a, b)


def _tests(program: Callable[..., Any]) -> list[Instruction]:
    code = in_common_form(program.__code__).instructions
    return [each for each in code if each.op in TRUTH_JUMPS]


@pytest.mark.parametrize(
    ("program", "count"),
    [(_while_one, 2), (_while_named, 2), (_while_in_while, 4)],
)
def test_the_test_of_a_loop_stands_twice(program: Callable[..., Any], count: int) -> None:
    jumps = _tests(program)
    assert len(jumps) == count
    assert len({each.offset for each in jumps}) == count
    assert len({each.location for each in jumps}) == count // 2


def test_each_part_of_a_test_has_an_offset_of_its_own() -> None:
    jumps = _tests(_while_two)
    assert len(jumps) == 5
    assert len({each.offset for each in jumps}) == 5


def _constants(code: CodeType) -> list[str]:
    return [each.op for each in in_common_form(code).instructions if each.op in COMMON_CONSTANTS]


def test_no_builtin_is_compared_with_its_name() -> None:
    assert not _constants(_builtins.__code__)
    assert inlines_builtins(_builtins.__code__) == behavior.SOME_BUILTINS_ARE_INLINED
    assert not inlines_builtins(_while_one.__code__)


@pytest.mark.skipif(not behavior.LOOPS_TEST_ONCE, reason="the compiler writes it twice")
@pytest.mark.parametrize("program", [_while_either, _while_many])
def test_a_test_of_several_parts_stands_twice(program: Callable[..., Any]) -> None:
    found = [each for each in decode(program.__code__).instructions if each.op in TRUTH_JUMPS]
    assert len(_tests(program)) == 2 * len(found)
