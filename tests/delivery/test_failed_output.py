"""What an error in a delivery means for what stands behind it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from bcmend.delivery.failed_output import Failures, is_of_an_argument


def _error_of(action: Callable[..., Any], *inputs: Any) -> BaseException:
    try:
        action(*inputs)
    except BaseException as error:
        error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ else None
        return error
    raise AssertionError("nothing was raised")


def _fails(*values: Any) -> int:
    raise ValueError("failed")


def _takes(value: Any) -> None:
    if value is None:
        raise OSError("disk full")


class _NoText:
    def __str__(self) -> str:
        raise RuntimeError("no text")


def _shows(value: Any) -> None:
    str(value)


def _call_fails() -> None:
    _takes(None)


def _argument_fails() -> None:
    _takes(_fails())


def _subscript_fails() -> None:
    _takes([][1])


def _text_fails() -> None:
    _shows(_NoText())


def _c_call_gets_a_wrong_type() -> None:
    "".join([1])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (_call_fails, False),
        (_argument_fails, True),
        (_subscript_fails, True),
        (_text_fails, True),
        (_c_call_gets_a_wrong_type, True),
    ],
)
def test_where_a_statement_has_failed(statement: Callable[[], None], expected: bool) -> None:
    assert is_of_an_argument(_error_of(statement), statement, ()) is expected


def test_functions_among_the_inputs_are_looked_at() -> None:
    apply: Callable[..., Any] = functools.partial(lambda make: make())
    error = _error_of(_argument_fails)
    assert is_of_an_argument(error, print, (1, (_argument_fails, 2)))
    assert not is_of_an_argument(error, print, (1, (_call_fails, 2)))
    assert not is_of_an_argument(error, apply, ())


def test_an_error_without_a_traceback_is_of_no_argument() -> None:
    assert not is_of_an_argument(ValueError("made"), _argument_fails, ())


def test_the_first_error_is_raised_with_the_others_in_its_notes() -> None:
    first, second = ValueError("first"), OSError("second")
    failures = Failures([first, second])
    assert failures.to_be_raised() is first
    (note,) = first.__notes__
    assert "OSError('second')" in note
    assert not failures.is_interrupted_twice


def test_an_interrupt_is_raised_before_all_others() -> None:
    error, interrupt = ValueError("first"), KeyboardInterrupt()
    assert Failures([error, interrupt]).to_be_raised() is interrupt
    assert "ValueError('first')" in interrupt.__notes__[0]


@pytest.mark.parametrize("count", range(4))
def test_the_second_interrupt_ends_a_delivery(count: int) -> None:
    errors = [KeyboardInterrupt() for _ in range(count)]
    assert Failures([ValueError(), *errors]).is_interrupted_twice is (count > 1)
