"""Stand-ins for the callers of a deferred call."""

from __future__ import annotations

import sys
import traceback
import warnings
from types import FrameType
from typing import Any

import pytest

from bcmend.delivery import callers
from bcmend.delivery.callers import CHAINS, UNKNOWN, CallerFrame, Chain
from bcmend.dynamo import plain_python
from bcmend.tracing.entry import boundary


def _traced(x: int) -> int:
    return x


def _outer(x: int) -> int:
    return _traced(x)


NAMES: dict[str, Any] = {"__name__": "elsewhere"}
INNER = CallerFrame(_traced.__code__, NAMES, 11)
OUTER = CallerFrame(_outer.__code__, {"__name__": "further"}, 22)


def _stack() -> list[tuple[str, int, str]]:
    """Return name, line and module of the frames around this one, innermost first."""
    found: list[tuple[str, int, str]] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        found.append((frame.f_code.co_name, frame.f_lineno, name))
        frame = frame.f_back
    return found


def test_a_stand_in_has_the_name_the_line_and_the_globals_of_its_frame() -> None:
    stack = INNER.stand_in()(_stack)
    assert stack[0] == ("_traced", 11, "elsewhere")
    shown = INNER.stand_in()(traceback.extract_stack)[-1]
    assert shown.filename == __file__


def test_a_stand_in_returns_what_the_call_returns() -> None:
    assert INNER.stand_in()(lambda: 7) == 7


@pytest.mark.parametrize(
    ("level", "expected"),
    [(1, []), (2, ["_traced"]), (3, ["_traced", "_outer"])],
)
def test_as_many_callers_stand_around_a_call_as_its_level_counts(
    level: int, expected: list[str]
) -> None:
    chain = Chain([INNER, OUTER])
    stack = callers.call_inside(CHAINS.add(chain), level, _stack, ())
    stood_for = [name for name, _, _ in stack if name in ("_traced", "_outer")]
    assert stood_for == expected


@pytest.mark.parametrize("more", [0, 1])
def test_for_an_unknown_level_there_are_so_many_callers_and_no_more(more: int) -> None:
    lines = [*range(1000, 1000 + callers._MOST + more)]
    chain = Chain(CallerFrame(_traced.__code__, NAMES, line) for line in lines)
    stack = callers.call_inside(CHAINS.add(chain), UNKNOWN, _stack, ())
    stood_for = [line for _, line, module in stack if module == "elsewhere"]
    assert stood_for == lines[: callers._MOST]
    assert (len(stood_for) == len(lines)) is not bool(more)


def test_callers_that_were_not_traced_are_those_around_the_boundary() -> None:
    chain = Chain([INNER])
    number = CHAINS.add(chain)

    def program() -> Any:
        return callers.call_inside(number, UNKNOWN, _stack, ())

    # The frame in front is the one that Dynamo entered; it is stood for already.
    stack = program()
    assert stack[0][0] == "_traced"
    assert stack[1][0] == "test_callers_that_were_not_traced_are_those_around_the_boundary"


def test_a_warning_is_attributed_to_the_caller_that_its_level_names() -> None:
    def statement(level: int) -> None:
        warnings.warn("text", UserWarning, level)

    chain = Chain([INNER, OUTER])
    number = CHAINS.add(chain)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for level in (2, 3):
            callers.call_inside(number, level, statement, (level,))
    assert [each.lineno for each in caught] == [11, 22]


def test_the_traceback_of_a_call_as_entered_does_not_show_its_callers_twice() -> None:
    def fail(value: int) -> None:
        raise ValueError(value)

    with pytest.raises(ValueError, match="3") as raised:
        callers.call_as_entered(fail, (3,))
    names = [each.name for each in traceback.extract_tb(raised.value.__traceback__)]
    assert names.count("fail") == 1 and names[-1] == "fail"
    assert names[0] == "test_the_traceback_of_a_call_as_entered_does_not_show_its_callers_twice"
    assert len(names) == 3  # the test, the function of bcmend, and what has failed


def test_a_call_as_entered_returns_a_value() -> None:
    assert callers.call_as_entered(divmod, (7, 2)) == (3, 1)


def test_calls_that_pass_all_arguments_on_are_found() -> None:
    def program(*arguments: Any, **keywords: Any) -> Any:
        len("no such call")
        return program(*arguments, **keywords)

    (found,) = callers.calls_in(program.__code__)
    assert found.lineno == program.__code__.co_firstlineno + 2
    assert callers.call_of_a_module().lineno is not None


def test_equal_callers_are_told_apart_by_code_and_line_alone() -> None:
    assert CallerFrame(_traced.__code__, {}, 11) == INNER
    assert CallerFrame(_traced.__code__, NAMES, 12) != INNER


def test_the_boundary_is_known_by_the_names_of_its_functions() -> None:
    assert callers.is_of_a_boundary(boundary.run.__code__)
    assert callers.is_of_a_boundary(boundary.run_in_place.__code__)
    assert not callers.is_of_a_boundary(plain_python.run.__code__)
