"""Tracebacks show no frames of bcmend, and a shell and its body as one function."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from types import FunctionType
from typing import Any

from bcmend.delivery import own_frames


def _fail() -> None:
    raise ValueError("failed")


def _raise(error: BaseException) -> None:
    raise error


def _boundary_of(file: str) -> Callable[..., Any]:
    """Return a function that calls its argument, in a file of bcmend's."""
    code = (lambda call: call()).__code__.replace(co_filename=file, co_name="run")
    return FunctionType(code, {})


BOUNDARY = _boundary_of(own_frames.__file__)


def _names(error: BaseException) -> list[str]:
    return [each.name for each in traceback.extract_tb(error.__traceback__)]


def _raised(call: Callable[[], Any]) -> BaseException:
    try:
        call()
    except ValueError as error:
        error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ else None
        own_frames.leave_out(error)
        return error
    raise AssertionError("nothing was raised")


def _shell() -> None:
    BOUNDARY(_body)


def _body() -> None:
    _fail()


def _calling() -> None:
    BOUNDARY(lambda: BOUNDARY(_fail))


def test_frames_of_the_boundary_are_dropped() -> None:
    assert _names(_raised(_shell)) == ["_shell", "_body", "_fail"]


def test_all_frames_up_to_the_last_of_bcmend_are_dropped() -> None:
    assert _names(_raised(_calling)) == ["_calling", "_fail"]


def test_the_shell_goes_where_the_next_frame_is_the_same_function() -> None:
    code = _body.__code__
    shell = FunctionType(
        _shell.__code__.replace(
            co_name=code.co_name, co_qualname=code.co_qualname, co_firstlineno=code.co_firstlineno
        ),
        globals(),
    )
    error = _raised(shell)
    assert _names(error) == ["_body", "_fail"]
    assert error.__traceback__ is not None and error.__traceback__.tb_frame.f_code is code


def test_an_error_of_bcmend_keeps_its_traceback() -> None:
    failing = FunctionType(_fail.__code__.replace(co_filename=own_frames.__file__), globals())

    def shell() -> None:
        BOUNDARY(failing)

    assert len(_names(_raised(shell))) == 3


def test_an_error_without_a_traceback_is_left_unchanged() -> None:
    error = ValueError("made")
    own_frames.leave_out(error)
    assert error.__traceback__ is None


def test_an_error_of_a_back_end_keeps_the_frame_that_torch_looks_for() -> None:
    def fail() -> None:
        error = ValueError("failed")
        error.first_useful_frame = sys._getframe()  # type: ignore[attr-defined]
        BOUNDARY(lambda: _raise(error))

    assert "fail" in _names(_raised(lambda: BOUNDARY(fail)))
