"""Instructions put in front of a function."""

from __future__ import annotations

import dis
import traceback
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

import pytest

from bcmend.bytecode import emit
from bcmend.bytecode.assemble import Item
from bcmend.bytecode.decode import decode
from bcmend.bytecode.instructions import AssembleError, Label
from bcmend.rewrite.writer.insert import insert_at_start


def notes(*values: object) -> list[Item]:
    """Append each value to the global list ``log``."""
    return [
        each
        for value in values
        for each in (
            *emit.call_value(
                [*emit.load_global("log"), *emit.load_attribute("append")],
                [emit.load_const(value)],
            ),
            *emit.pop_top(),
        )
    ]


def with_items(function: Callable[..., Any], items: list[Item], log: list[object]) -> Any:
    code = insert_at_start(function.__code__, items)
    names = {**function.__globals__, "log": log}
    return FunctionType(code, names, None, function.__defaults__, function.__closure__)


def handles(a: int) -> str:
    total = 0
    while True:
        try:
            total += 10 // a
        except ZeroDivisionError as error:
            return f"{error}"
        a -= 1


def test_the_function_runs_after_what_was_inserted() -> None:
    log: list[object] = []
    assert with_items(handles, notes(1, 2), log)(2) == handles(2)
    assert log == [1, 2]


def test_many_instructions_with_wide_arguments_can_be_inserted() -> None:
    log: list[object] = []
    numbers = [number + 0.5 for number in range(400)]
    assert with_items(handles, notes(*numbers), log)(3) == handles(3)
    assert log == numbers


def test_a_captured_argument_and_a_closure_keep_working() -> None:
    outside = "o"

    def captures(a: str) -> str:
        def inner() -> str:
            return a + outside

        return inner()

    log: list[object] = []
    assert with_items(captures, notes("first"), log)("a") == "ao"
    assert log == ["first"]


def test_inserted_instructions_can_jump_and_return() -> None:
    go_on = Label()
    items = [
        *emit.load_local("a"),
        *emit.jump_if_true(go_on),
        *emit.load_const("none"),
        *emit.return_value(),
        go_on,
    ]
    function = with_items(handles, items, [])
    assert function(0) == "none"
    assert function(1) == handles(1)


def test_what_follows_keeps_instructions_and_positions() -> None:
    before = decode(handles.__code__)
    after = decode(insert_at_start(handles.__code__, notes("x")))
    added = len(after.instructions) - len(before.instructions)
    resume = [each.op for each in before.instructions].index("RESUME")
    rest = after.instructions[resume + 1 + added :]
    assert [(each.op, each.arg, each.location) for each in rest] == [
        (each.op, each.arg, each.location) for each in before.instructions[resume + 1 :]
    ]
    inserted = after.instructions[resume + 1 : resume + 1 + added]
    assert {each.location for each in inserted} == {before.instructions[resume].location}


def fails(a: int) -> float:
    return 1 / a


def test_a_traceback_names_the_line_that_failed() -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        with_items(fails, notes("x"), [])(0)
    last = traceback.extract_tb(raised.value.__traceback__)[-1]
    assert last.lineno == fails.__code__.co_firstlineno + 1
    assert last.line == "return 1 / a"


def test_a_function_written_on_one_line() -> None:
    """Where RESUME and what follows can share an entry of the line table."""
    names: dict[str, Any] = {}
    exec(compile("def f(a): return [a, a]", "one.py", "exec"), names)
    code: CodeType = names["f"].__code__
    plain = code.replace(co_linetable=bytes([128 | 13 << 3 | 7, 0]))  # one entry for all of it
    log: list[object] = []
    assert FunctionType(insert_at_start(plain, notes("x")), {"log": log})(1) == [1, 1]
    assert log == ["x"]
    first_units = list(insert_at_start(plain, notes("x")).co_positions())[:8]
    assert {position[0] for position in first_units} == {code.co_firstlineno}


def counts() -> Iterator[int]:
    yield 1


def test_a_function_inside_a_try_range_from_the_start_is_refused() -> None:
    if not counts.__code__.co_exceptiontable:
        pytest.skip("this CPython does not guard a generator from its start")
    with pytest.raises(AssembleError, match="begins inside a try range"):
        insert_at_start(counts.__code__, [])


def test_operands_that_are_missing_are_noticed() -> None:
    with pytest.raises(AssembleError, match="needs 1 operands"):
        insert_at_start(fails.__code__, [*emit.pop_top()])


def test_nothing_inserted_changes_nothing() -> None:
    same = insert_at_start(handles.__code__, [])
    assert same.co_code == handles.__code__.co_code
    assert list(same.co_positions()) == list(handles.__code__.co_positions())
    assert dis.Bytecode(same).dis() == dis.Bytecode(handles.__code__).dis()
