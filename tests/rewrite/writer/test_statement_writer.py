"""Output statements: what the primitives are given, and what becomes of their answers."""

from __future__ import annotations

import warnings
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest

from bcmend.analysis.facts import facts_of
from bcmend.bytecode.decode import decode
from bcmend.names import NAMESPACE
from bcmend.rewrite.sites.output_proposal import propose_output
from bcmend.rewrite.sites.output_statements import output_statements
from bcmend.rewrite.sites.plan import OutputLowering, Plan, Site
from bcmend.rewrite.writer.code_writer import CodeWriter


class Spy:
    """Records what is asked and what is recorded."""

    def __init__(self, *, is_recorded: bool = True) -> None:
        self.is_recorded = is_recorded
        self.questions: list[tuple[Any, ...]] = []
        self.records: list[tuple[Any, ...]] = []

    def recording(self, *arguments: Any) -> bool:
        self.questions.append(arguments)
        return self.is_recorded

    def record(self, *arguments: Any) -> bool:
        self.records.append(arguments)
        return True


def _written(function: FunctionType, spy: Spy) -> FunctionType:
    facts = facts_of(decode(function.__code__))
    (statement,) = output_statements(facts, function.__globals__)
    lowering = propose_output(facts, statement)
    assert isinstance(lowering, OutputLowering)
    plan = Plan([Site("f:output", "output", lowering.start, 1, 0, lowering)])
    body = CodeWriter(facts, plan, {}).body(with_buffer=False)
    return FunctionType(body, {**function.__globals__, NAMESPACE: spy})


def _prints(x, y):
    print("x", x, y + 1)
    return x


def test_a_statement_is_recorded_with_its_inputs(capsys: pytest.CaptureFixture[str]) -> None:
    spy = Spy()
    assert _written(_prints, spy)(3, 4) == 3
    assert capsys.readouterr().out == ""
    assert spy.questions == [("f:output", 1)]
    ((key, action, inputs),) = spy.records
    assert (key, inputs) == ("f:output", (3, 5))
    assert action(*inputs) is None
    assert capsys.readouterr().out == "x 3 5\n"
    action("other", "values")
    assert capsys.readouterr().out == "x other values\n"


def test_what_is_not_recorded_is_written_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    spy = Spy(is_recorded=False)
    assert _written(_prints, spy)(3, 4) == 3
    assert capsys.readouterr().out == "x 3 5\n" and spy.records == []


def test_none_takes_the_place_of_a_result() -> None:
    def f(x):
        return [print(x), x]

    assert _written(f, Spy())(3) == [None, 3]


def test_the_trace_is_asked_about_an_object_with_its_method_and_level() -> None:
    def f(self, level, x):
        self.log.log(level, x)
        return x

    spy = Spy()
    owner = SimpleNamespace(log=SimpleNamespace(log=None))
    assert _written(f, spy)(owner, 10, "text") == "text"
    assert spy.questions == [("f:output", 1, owner.log, "log", 10, "", True)]


def test_only_log_has_a_level() -> None:
    def f(self, x):
        self.log.info(x)

    spy = Spy()
    owner = SimpleNamespace(log="log")
    _written(f, spy)(owner, "text")
    assert spy.questions == [("f:output", 1, "log", "info", None, "", True)]


def test_a_level_of_the_stack_is_recorded() -> None:
    def f(x):
        warnings.warn(x, stacklevel=2)

    spy = Spy()
    _written(f, spy)("text")
    ((_, _, inputs, level, shows_tracebacks),) = spy.records
    assert (inputs, level, shows_tracebacks) == (("text",), 2, False)
    assert spy.questions == [("f:output", 2)]


def test_what_may_fail_is_recorded_as_a_trial(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x, y):
        print(x.item(), str(y))

    spy = Spy()
    one = SimpleNamespace(item=lambda: 1)
    _written(f, spy)(one, 2)
    ((_, action, inputs, level, shows, trial, (tried, fails)),) = spy.records
    assert inputs == (one, 2) and (level, shows) == (1, False)
    assert (tried, fails) == ((0,), 2)
    trial(*inputs)
    assert capsys.readouterr().out == ""
    with pytest.raises(AttributeError):
        trial(None, 2)
    trial(one, None)  # text can be made of anything
    action(*inputs)
    assert capsys.readouterr().out == "1 2\n"


def test_an_argument_with_jumps_is_evaluated_later(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x, y):
        print(str(x) if y else "none", y or "empty")

    spy = Spy()
    _written(f, spy)("text", 0)
    ((_, action, inputs, *_),) = spy.records
    action(*inputs)
    assert capsys.readouterr().out == "none empty\n"
    action(*("one" if each == "text" else 5 for each in inputs))
    assert capsys.readouterr().out == "one 5\n"


def test_an_input_with_a_jump_is_evaluated_at_once() -> None:
    def f(x, y):
        print(x, end=y)
        return x

    spy = Spy()
    assert _written(f, spy)(1, "!") == 1
    assert spy.records[0][2] == (1, "!")
