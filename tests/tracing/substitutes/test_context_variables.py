"""``ContextVar.get``, ``set`` and ``reset``, called directly."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import pytest
import torch

from bcmend.dynamo import compat
from bcmend.dynamo.handlers import PASS
from bcmend.dynamo.values import constant
from bcmend.tracing.sites import capture_mode
from bcmend.tracing.sites.refusal import Refusal
from bcmend.tracing.substitutes import context_variables
from tests.tracing.in_trace import during_trace, substituted

GIVEN: ContextVar[int] = ContextVar("GIVEN", default=3)
EMPTY: ContextVar[int] = ContextVar("EMPTY")
X = torch.ones(1)


def _model(tx: Any, name: str = "GIVEN") -> Any:
    source = compat.AttrSource(tx.import_source(__name__), name)
    return compat.VariableTracker.build(tx, globals()[name], source).realize()


def _call(tx: Any, method: str, *args: Any, owner: Any = None) -> Any:
    name = f"contextvars.ContextVar.{method}"
    answer = getattr(context_variables, f"_{method}")
    return answer(substituted(tx, name, *args, owner=owner or _model(tx)))


def _value(found: Any) -> Any:
    return found.as_python_constant()


def test_what_a_variable_holds_when_the_call_begins() -> None:
    assert during_trace(lambda tx, x: _value(_call(tx, "get")), X) == 3


def test_what_was_set_is_read_and_reset_in_order() -> None:
    def body(tx: Any, x: Any) -> Any:
        tokens, found = [], []
        for number in (4, 5):
            tokens.append(_call(tx, "set", constant(number)))
            found.append(_value(_call(tx, "get")))
        for token in reversed(tokens):
            _call(tx, "reset", token)
            found.append(_value(_call(tx, "get")))
        return found

    assert during_trace(body, X) == [4, 5, 4, 3]
    assert GIVEN.get() == 3


def test_what_remains_set_is_there_after_the_call() -> None:
    token = GIVEN.set(3)
    try:
        during_trace(lambda tx, x: _value(_call(tx, "set", constant(8)).before or constant(0)), X)
        assert GIVEN.get() == 8
    finally:
        GIVEN.reset(token)


def test_reads_that_are_refused() -> None:
    def body(tx: Any, x: Any) -> None:
        with pytest.raises(Refusal, match="a default is given"):
            _call(tx, "get", constant(1))
        with pytest.raises(Refusal, match="no value yet"):
            _call(tx, "get", owner=_model(tx, "EMPTY"))
        with pytest.raises(Refusal, match="made in the call"):
            _call(tx, "get", owner=constant(1))

    during_trace(body, X)


def test_tokens_that_are_refused() -> None:
    def body(tx: Any, x: Any) -> None:
        token = _call(tx, "set", constant(4))
        foreign = _call(tx, "set", constant(4), owner=_model(tx, "EMPTY"))
        _call(tx, "reset", token)
        for given in (token, foreign, constant(None)):
            with pytest.raises(Refusal, match="the token"):
                _call(tx, "reset", given)

    during_trace(body, X)


def test_set_with_other_arguments_is_passed_on() -> None:
    assert during_trace(lambda tx, x: _call(tx, "set"), X) is PASS


def test_set_is_refused_where_the_graph_may_break(monkeypatch: pytest.MonkeyPatch) -> None:
    def body(tx: Any, x: Any) -> None:
        with monkeypatch.context() as patch, pytest.raises(Refusal, match="may break"):
            patch.setattr(capture_mode, "in_mended_code", lambda tx: False)
            _call(tx, "set", constant(1))

    during_trace(body, X)
