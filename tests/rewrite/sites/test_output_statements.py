"""Calls that write something, and what they write of globals."""

from __future__ import annotations

import logging
import math
import sys
import warnings
from functools import lru_cache
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest

from bcmend.analysis.facts import Facts, facts_of
from bcmend.bytecode.decode import decode
from bcmend.bytecode.opcodes import CALLS
from bcmend.rewrite.sites.output_statements import (
    may_write_output,
    output_statements,
)
from bcmend.rewrite.sites.plan import Callee
from tests.listing import listing

logger = logging.getLogger(__name__)


@lru_cache
def _once(text):
    print(text)


@lru_cache
def _returns(text):
    print(text)
    return text


state = SimpleNamespace(loss=1)


def _facts(function: FunctionType) -> Facts:
    return facts_of(decode(function.__code__))


def _statements(function: FunctionType, asked: frozenset[int] = frozenset()) -> list[Any]:
    return list(output_statements(_facts(function), function.__globals__, asked))


def _callee(function: FunctionType, callee: Callee) -> tuple[list[object], str, object]:
    code = _facts(function).instructions
    load = [
        each.arg[-1] if isinstance(each.arg, tuple) else each.arg
        for each in code[callee.load.start : callee.load.end]
    ]
    level = None if callee.level is None else code[callee.level.start].arg
    return load, callee.method, level


def _prints(x):
    print(x)


def _prints_the_result(x):
    return print(x)


def _warns(x):
    warnings.warn(x, stacklevel=2)


def _writes(x):
    sys.stderr.write(x)


def _calls_it_once(x):
    _once(x)


@pytest.mark.parametrize(
    ("function", "is_dropped", "returns_none"),
    [
        (_prints, True, True),
        (_prints_the_result, False, True),
        (_warns, True, True),
        (_writes, True, False),
        (_calls_it_once, True, True),
    ],
)
def test_a_callee_that_the_code_identifies(
    function: FunctionType, is_dropped: bool, returns_none: bool
) -> None:
    (found,) = _statements(function)
    code = _facts(function).instructions
    assert code[found.call].op in CALLS and code[found.start - 1].op == "RESUME"
    assert (found.is_dropped, found.returns_none) == (is_dropped, returns_none)
    assert found.callee is None


def _logs(x):
    logger.info("x is %s", x)


def _logs_at_a_level(x):
    logger.log(x, "text")


def _own_logger(self, x):
    self.log.debug(x)


def _shadowed(print, x):
    print(x)


@pytest.mark.parametrize(
    ("function", "callee"),
    [
        (_logs, (["logger"], "info", "x is %s")),
        (_logs_at_a_level, (["logger"], "log", "x")),
        (_own_logger, (["self", "log"], "debug", "x")),
        (_shadowed, (["print"], "", "x")),
    ],
)
def test_a_callee_that_the_trace_has_to_check(function: FunctionType, callee: object) -> None:
    (found,) = _statements(function)
    assert found.callee is not None and _callee(function, found.callee) == callee


def _finds_a_logger(x):
    logging.getLogger("name").warning(x)


def _takes_a_logger(x):
    x[0].info("text")


def _takes_an_attribute(x):
    getattr(x, "writer")(1)  # noqa: B009


@pytest.mark.parametrize(
    ("function", "method"),
    [(_finds_a_logger, "warning"), (_takes_a_logger, "info"), (_takes_an_attribute, "")],
)
def test_a_callee_that_is_found_by_more_than_attributes(
    function: FunctionType, method: str
) -> None:
    (found,) = _statements(function)
    assert found.callee is not None and found.callee.method == method


def _appends(x):
    x.append(1)


def _computes(x):
    math.sqrt(x)


def _uses_the_result_of_a_method(x):
    return x.log()


def _calls_what_returns(x):
    _returns(x)


def _calls_an_item(x):
    x[0](1)


@pytest.mark.parametrize(
    "function",
    [_appends, _computes, _uses_the_result_of_a_method, _calls_what_returns, _calls_an_item],
)
def test_calls_that_write_nothing(function: FunctionType) -> None:
    assert _statements(function) == []


def test_a_call_where_a_trace_stopped_is_a_statement() -> None:
    for function in (_appends, _calls_an_item):
        (call,) = (each for each in _facts(function).instructions if each.op == "CALL")
        assert len(_statements(function, frozenset([call.offset]))) == 1


def test_a_statement_in_an_argument_of_another_is_a_part_of_it() -> None:
    def f(x):
        print(x, print(x))

    (found,) = _statements(f)
    calls = [i for i, each in enumerate(_facts(f).instructions) if each.op == "CALL"]
    assert found.call == calls[-1]


def test_a_result_that_shares_its_pop_with_another_path_is_used() -> None:
    made = listing(
        """
            LOAD_FAST x
            POP_JUMP_IF_TRUE -> call
            LOAD_CONST 1
            JUMP -> drop
        call:
            PUSH_NULL
            LOAD_GLOBAL print
            LOAD_FAST x
            CALL 1
        drop:
            POP_TOP
            RETURN_CONST None
        """,
        ("x",),
    )
    (found,) = output_statements(facts_of(made.function), {})
    assert (found.start, found.call) == (made.at["call"], made.at["drop"] - 1)
    assert not found.is_dropped


def test_globals_that_may_change_and_globals_that_do_not() -> None:
    def f(x):
        print(state.loss, math.pi, len(x), unknown.value)  # type: ignore[name-defined] # noqa: F821

    (found,) = _statements(f)
    assert found.data == {("state",), ("unknown",)}
    assert found.harmless == {"math", "len"}


# --- the test before decoding --------------------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [_prints, _warns, _writes, _logs, _own_logger, _shadowed, _calls_it_once, _takes_an_attribute],
)
def test_code_that_may_write(function: FunctionType) -> None:
    assert may_write_output(function.__code__, function.__globals__)


def test_code_that_cannot_write() -> None:
    def reads(x):
        return x.info

    def computes():
        return math.sqrt(2.0)

    assert not may_write_output(reads.__code__, {})
    assert not may_write_output(computes.__code__, {"math": math})


@lru_cache
def _calls_itself(number):
    return number if number < 2 else number * _calls_itself(number - 1)


def test_a_function_that_remembers_and_calls_itself_writes_nothing() -> None:
    def calls():
        return _calls_itself(3)

    facts = facts_of(decode(calls.__code__))
    assert not list(output_statements(facts, globals()))
    assert not may_write_output(calls.__code__, globals())
