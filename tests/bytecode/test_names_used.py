"""Questions about raw bytecode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bcmend.bytecode.names_used import (
    calls_a_variable,
    code_objects,
    formats,
    has_assertion,
    has_call,
    has_loop,
    has_name,
    has_subscript,
    has_truth_jump,
    has_with,
)


def _reads(x: Any) -> Any:
    return x[0]


def _stores(x: Any) -> None:
    x[1] = 2


def _reads_a_slice(x: Any) -> Any:
    return x[1:2]


def _stores_a_slice(x: Any) -> None:
    x[1:2] = []


def _reads_within(x: Any) -> Any:
    return lambda: x[0]


def _calls(x: Any) -> Any:
    return x.first(0)


@pytest.mark.parametrize("function", [_reads, _stores, _reads_a_slice, _stores_a_slice])
def test_items_are_read_and_stored(function: Callable[..., Any]) -> None:
    assert has_subscript(function.__code__)


def test_nested_code_counts() -> None:
    assert has_subscript(_reads_within.__code__)
    assert not has_subscript(_calls.__code__)


def _asserts(x: Any) -> None:
    assert x


def _asserts_within(x: Any) -> Any:
    def check() -> None:
        if not x:
            raise AssertionError

    return check


def test_assertions_are_seen() -> None:
    assert has_assertion(_asserts.__code__)
    assert has_assertion(_asserts_within.__code__)
    assert not has_assertion(_calls.__code__)


def _plain(x: Any) -> Any:
    return x


def _loops(x: Any) -> None:
    for _ in x:
        pass


def _enters(x: Any) -> None:
    with x:
        pass


def _tests(x: Any) -> Any:
    return 1 if x else 2


def _tests_within(x: Any) -> Any:
    return lambda: 1 if x else 2


def _calls_with_keywords(x: Any) -> Any:
    return x.first(y=0)


def _calls_unpacked(x: Any) -> Any:
    return len(*x)


def _formats(x: Any) -> Any:
    return f"<{x}>"


QUESTIONS = {
    has_call: {_calls, _calls_with_keywords, _calls_unpacked},
    has_loop: {_loops},
    has_with: {_enters},
    has_truth_jump: {_tests},
    formats: {_formats},
}
FUNCTIONS = (
    *(_plain, _loops, _tests, _tests_within, _calls, _calls_with_keywords, _calls_unpacked),
    *(_formats, _reads),
)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda each: each.__name__)
def test_what_a_function_has(question: Callable[..., bool], function: Any) -> None:
    assert question(function.__code__) is (function in QUESTIONS[question])


def test_a_with_block_is_found() -> None:
    assert has_with(_enters.__code__)


def test_nested_jumps_count_if_asked() -> None:
    assert not has_truth_jump(_tests_within.__code__)
    assert has_truth_jump(_tests_within.__code__, nested=True)


def test_names_of_globals_and_attributes_count_and_locals_do_not() -> None:
    code = _calls.__code__
    assert has_name(code, frozenset(["other", "first"]))
    assert not has_name(code, frozenset(["x"]))
    assert has_name(_calls_unpacked.__code__, frozenset(["len"]))


def test_names_of_nested_code_count() -> None:
    def outer():
        return lambda: math.sqrt  # noqa: F821

    assert has_name(outer.__code__, frozenset(["sqrt"]))


def test_code_objects_come_outermost_first() -> None:
    def outer():
        def middle():
            return lambda: 1

        return middle

    names = [each.co_name for each in code_objects(outer.__code__)]
    assert names == ["outer", "middle", "<lambda>"]


def _calls_an_argument(x: Any) -> Any:
    return x(1)


def _calls_a_captured_one(x: Any) -> Any:
    return lambda: x(1)


def _calls_a_global(x: Any) -> Any:
    return len(x)


def test_calls_of_variables() -> None:
    assert calls_a_variable(_calls_an_argument.__code__)
    inner = list(code_objects(_calls_a_captured_one.__code__))[1]
    assert calls_a_variable(inner)
    assert not calls_a_variable(_calls_a_global.__code__)
    assert not calls_a_variable(_calls.__code__)
