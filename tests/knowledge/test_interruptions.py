"""What a handler of a signal raises is known, whatever it has been put into since."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest

from bcmend.knowledge.interruptions import is_interruption


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    def handler(*_: object) -> None:
        raise TimeoutError("late")

    before = signal.signal(signal.SIGALRM, handler)
    yield
    signal.signal(signal.SIGALRM, before)


def _late() -> None:
    signal.raise_signal(signal.SIGALRM)


def _named_as_the_cause() -> None:
    try:
        _late()
    except TimeoutError as error:
        raise RuntimeError("failed") from error


def _not_named() -> None:
    try:
        _late()
    except TimeoutError:
        raise RuntimeError("failed") from None


def _another() -> None:
    raise TimeoutError("late")


def _caught(function: Callable[[], None]) -> BaseException:
    with pytest.raises((TimeoutError, RuntimeError)) as found:
        function()
    return found.value


@pytest.mark.parametrize("function", [_late, _named_as_the_cause, _not_named])
def test_an_interruption_is_one(function: Callable[[], None]) -> None:
    assert is_interruption(_caught(function))


def test_the_same_exception_of_the_program_is_none() -> None:
    assert not is_interruption(_caught(_another))
    assert not is_interruption(TimeoutError("never raised"))
