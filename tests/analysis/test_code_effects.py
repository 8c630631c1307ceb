"""What instructions touch, and what forbids moving them."""

from __future__ import annotations

import inspect
import sys
from types import FunctionType
from typing import Any

import pytest

from bcmend.analysis.code_effects import LOOKING_AT_FRAMES, Touched, names_of, touched
from bcmend.analysis.facts import facts_of
from bcmend.bytecode.decode import decode
from bcmend.bytecode.instructions import Instruction
from tests.listing import listing


def _touched(function: FunctionType) -> Touched:
    facts = facts_of(decode(function.__code__))
    return touched(facts, range(len(facts.instructions)))


def test_locals_that_are_read_written_and_deleted() -> None:
    def f(a, b):
        c = a
        del b
        return c

    found = _touched(f)
    assert found.read == {"a", "c"}
    assert found.written == {"c"}
    assert found.deleted == {"b"}
    assert found.cells == found.cells_written == frozenset()
    assert not (found.introspects or found.uses_super or found.suspends)


def test_only_the_given_instructions_count() -> None:
    made = listing("LOAD_FAST a\nSTORE_FAST b\nLOAD_FAST c\nRETURN_VALUE", ("a", "c"))
    found = touched(facts_of(made.function), [0, 1])
    assert found.read == {"a"} and found.written == {"b"}
    assert touched(facts_of(made.function), []).read == frozenset()


def test_cells_that_are_read_captured_and_bound() -> None:
    def f(a, b):
        def inner():
            return a, b, c

        c = b
        return inner

    found = _touched(f)
    assert found.cells == {"a", "b", "c"}
    assert found.cells_written == {"c"}


def test_an_inlined_save_reads_and_deletes() -> None:
    made = listing("LOAD_FAST_AND_CLEAR a\nSTORE_FAST a\nRETURN_CONST 1", ("a",))
    found = touched(facts_of(made.function), range(2))
    assert found.read == found.deleted == found.written == {"a"}


def _locals():
    return locals()


def _variables_of_another(x):
    return vars(x)


def _frame():
    return sys._getframe()


def _current_frame():
    return inspect.currentframe()


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (_locals, "locals"),
        (_variables_of_another, "vars"),
        (_frame, "_getframe"),
        (_current_frame, "currentframe"),
    ],
)
def test_calls_that_look_at_their_frame(function: Any, name: str) -> None:
    assert _touched(function).introspects == name
    assert name in LOOKING_AT_FRAMES


def test_an_attribute_with_the_name_of_a_builtin_is_another_thing() -> None:
    def f(x):
        return x.locals(), x.eval

    assert _touched(f).introspects == ""


class _Base:
    def method(self) -> Any:
        return super().__init__()


def test_super_needs_the_cell_of_the_class() -> None:
    found = _touched(_Base.method)  # type: ignore[arg-type]
    assert found.uses_super and found.cells == {"__class__"}


def test_a_yield_suspends() -> None:
    def f(x):
        yield x

    assert _touched(f).suspends


@pytest.mark.parametrize(
    ("instruction", "name"),
    [
        (Instruction("LOAD_GLOBAL", (True, "print")), "print"),
        (Instruction("LOAD_SUPER_ATTR", (True, False, "forward")), "forward"),
        (Instruction("STORE_ATTR", "weight"), "weight"),
        (Instruction("BUILD_TUPLE", 2), ""),
        (Instruction("LOAD_CONST", (1, 2)), ""),
        (Instruction("POP_TOP"), ""),
    ],
)
def test_names_of_instructions(instruction: Instruction, name: str) -> None:
    assert names_of(instruction) == name
