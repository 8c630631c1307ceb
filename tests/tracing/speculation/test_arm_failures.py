"""What the exception that ended the trace of an arm says of the program."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from bcmend.dynamo import compat
from bcmend.tracing.speculation import arm_failures
from bcmend.tracing.speculation.arm_failures import (
    BothRaise,
    Raised,
    exception_name,
    is_being_made,
    whether_raised,
)


def _raised(raise_it: Callable[..., Any], *arguments: Any) -> Exception:
    """Return an exception with its traceback."""
    try:
        raise_it(*arguments)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def _raise(error: Exception) -> None:
    raise error


def _through(monkeypatch: pytest.MonkeyPatch, name: str, error: Exception, file: str) -> Exception:
    """Return ``error``, raised through a function that stands for one of Dynamo's."""

    def function(self: Any) -> None:
        raise error

    monkeypatch.setattr(arm_failures, name, function.__code__)
    translator = SimpleNamespace(
        f_code=SimpleNamespace(co_filename=file), value=SimpleNamespace(__name__="Custom")
    )
    return _raised(function, translator)


def _graph_break(gb_type: str) -> Exception:
    error = compat.Unsupported("stop")
    error.gb_type = gb_type
    return error


@pytest.mark.parametrize(
    ("gb_type", "expected"),
    [
        ("Attempted to read undefined local variable", Raised.CERTAIN),
        ("Data-dependent assertion failed (cannot compile partial graph)", Raised.CERTAIN),
        ("Read uninitialized cell", Raised.LIKELY),
        ("assert with non-string message", Raised.LIKELY),
        ("Data-dependent branching", Raised.UNKNOWN),
    ],
)
def test_few_graph_breaks_stand_for_an_error_of_the_program(gb_type: str, expected: str) -> None:
    assert whether_raised(_raised(_raise, _graph_break(gb_type))) == expected


def test_a_raise_statement_of_the_program_is_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    error = compat.ObservedException("observed")
    assert whether_raised(_through(monkeypatch, "_RAISE", error, "user.py")) == Raised.CERTAIN


def test_a_raise_in_a_model_of_dynamos_is_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    error = compat.ObservedException("observed")
    file = f"{arm_failures._POLYFILLS}/builtins.py"
    assert whether_raised(_through(monkeypatch, "_RAISE", error, file)) == Raised.LIKELY


def test_what_a_model_of_dynamos_raises_itself_is_likely() -> None:
    assert whether_raised(_raised(_raise, compat.ObservedException("observed"))) == Raised.LIKELY


def test_an_operation_that_fails_on_fake_tensors_is_likely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert (
        whether_raised(_through(monkeypatch, "_FAKE", RuntimeError("shape"), "")) == Raised.LIKELY
    )
    assert whether_raised(_raised(_raise, compat.TorchRuntimeError("shape"))) == Raised.LIKELY


def test_an_error_of_unknown_origin_says_nothing() -> None:
    assert whether_raised(_raised(_raise, RuntimeError("of a back end"))) == Raised.UNKNOWN
    assert whether_raised(_raised(_raise, compat.TorchDynamoException("bug"))) == Raised.UNKNOWN


def test_an_arm_of_two_that_raise_is_as_certain_as_the_less_certain_of_them() -> None:
    assert whether_raised(BothRaise(Raised.LIKELY, "ValueError")) == Raised.LIKELY


def test_an_exception_whose_making_dynamo_cannot_follow_is_likely_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = _through(monkeypatch, "_MAKE", _graph_break("other"), "user.py")
    assert is_being_made(error)
    assert whether_raised(error) == Raised.LIKELY
    assert exception_name(error) == "Custom"


def test_an_exception_is_named_as_in_python() -> None:
    observed = compat.observed_exception_map[KeyError]
    error = _raised(_raise, observed("observed"))
    assert not is_being_made(error)
    assert exception_name(error) == "KeyError"
    assert exception_name(ZeroDivisionError()) == "ZeroDivisionError"
