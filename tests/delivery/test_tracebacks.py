"""Exceptions that output shows: the traceback that is made for them, and what came around them."""

from __future__ import annotations

import dis
import gc
import io
import logging
import sys
import traceback
import weakref
from collections.abc import Callable
from contextlib import redirect_stderr
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from bcmend.delivery.tracebacks import (
    ROUTES,
    Route,
    TracebackEntry,
    call_handling,
    place_of,
    traceback_of,
)
from tests.equivalence import CountingBackend

X = torch.tensor([1.0, 2.0, 3.0])
logger = logging.getLogger(__name__)


pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


NOWHERE = Route(())  # the table of routes does not keep them alive
NUMBER = ROUTES.add(NOWHERE)


def fails(x: Any) -> Any:
    raise ValueError(
        "no",
        x,
    )


def calls(x: Any) -> Any:
    return [
        [fails(x)]  # a part of the line: no Python marks a whole one
        for _ in range(1)
    ] + [x]  # fmt: skip


def _entries_of(error: BaseException) -> tuple[TracebackEntry, ...]:
    """Return the entries of a real traceback, from the positions of its instructions."""
    found, entry = [], error.__traceback__
    while entry is not None:
        code = entry.tb_frame.f_code
        positions = list(code.co_positions())[entry.tb_lasti // 2]
        line, end_line, column, end_column = positions
        assert None not in positions
        place = (line, end_line, column, end_column)
        found.append(TracebackEntry(code, entry.tb_frame.f_globals, place))  # type: ignore[arg-type]
        entry = entry.tb_next
    return tuple(found)


def test_a_traceback_that_is_made_reads_like_the_real_one() -> None:
    with pytest.raises(ValueError) as raised:
        calls(1)
    expected = traceback.format_tb(raised.tb)
    assert "^" in "".join(expected)
    assert traceback.format_tb(traceback_of(_entries_of(raised.value))) == expected


def test_a_traceback_that_is_made_has_the_globals_and_no_callers() -> None:
    with pytest.raises(ValueError) as raised:
        calls(1)
    entry = traceback_of(_entries_of(raised.value))
    assert entry is not None
    assert entry.tb_frame.f_globals is globals()
    assert entry.tb_frame.f_back is None


def test_a_place_without_columns() -> None:
    assert place_of(None) is None
    assert place_of(dis.Positions(None, None, None, None)) is None
    place = place_of(dis.Positions(3, 4, None, None))
    assert place == (3, 3, -1, -1)
    shown = traceback.format_tb(traceback_of([TracebackEntry(fails.__code__, globals(), place)]))
    assert "line 3, in fails" in shown[0] and "^" not in shown[0]


def test_the_exception_being_handled_is_there_while_the_action_runs_and_gone_behind_it() -> None:
    error, seen = KeyError("k"), []
    row = (error, NUMBER, None, None, False)
    call_handling((row,), True, lambda: seen.append(sys.exc_info()[:2]), ())
    call_handling((row,), False, lambda: seen.append(sys.exc_info()[:2]), ())
    assert seen == [(KeyError, error), (None, None)]
    assert error.__traceback__ is None and error.__context__ is None


def test_what_the_caller_handles_is_the_context_of_what_the_call_has_raised() -> None:
    first, second = KeyError("first"), ValueError("second")
    rows = (
        (second, NUMBER, first, None, False),
        (first, NUMBER, None, None, False),
    )
    try:
        raise OSError("around")
    except OSError as around:
        call_handling(rows, True, lambda: None, ())
        assert (second.__context__, first.__context__) == (first, around)


# Compiled


def _text(program: Callable[..., Any], *arguments: Any) -> str:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    logger.addHandler(handler)
    try:
        with redirect_stderr(written):
            program(*arguments)
    finally:
        logger.removeHandler(handler)
    return written.getvalue()


def _handled_outside(program: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Tensor) -> Any:
        try:
            raise OverflowError("outside")
        except OverflowError:
            return program(x)

    return call


def program_that_logs(x: Tensor) -> Tensor:
    try:
        calls(2)
    except ValueError:
        logger.exception("inside")
        traceback.print_exc()
    logger.error("behind", exc_info=True)
    return x * 2


def test_a_handler_around_the_call_is_shown_as_in_eager_execution() -> None:
    expected = _text(_handled_outside(program_that_logs), X)
    assert expected.count("OverflowError: outside") == 3
    backend = CountingBackend("eager")
    compiled = torch.compile(bcmend.patch(program_that_logs), backend=backend, fullgraph=True)
    for _ in range(2):
        assert _text(_handled_outside(compiled), X) == expected
    assert _text(compiled, X).count("OverflowError") == 0
    assert backend.graphs == 1


def checks(x: Tensor) -> Tensor:
    if x.sum() < 0:
        raise ValueError("negative")
    return x * 2


def program_that_handles_a_check(x: Tensor) -> Tensor:
    try:
        x = checks(x)
    except ValueError:
        traceback.print_exc()
    return x


def test_no_frame_of_a_boundary_is_shown_where_the_graph_breaks() -> None:
    expected = _text(program_that_handles_a_check, -X)
    compiled = torch.compile(bcmend.patch(program_that_handles_a_check), backend="eager")
    compiled(X)
    for _ in range(3):  # by a side exit first, then by a boundary of the function that is called
        assert _text(compiled, -X) == expected


def test_the_traceback_of_a_check_shows_the_function_once_and_no_boundary() -> None:
    compiled = bcmend.compile(checks, backend="eager", fullgraph=True)
    with pytest.raises(ValueError) as raised:
        compiled(-X)
    names = [each.name for each in traceback.extract_tb(raised.tb) if each.filename == __file__]
    assert names[1:] == ["checks"]
    assert not any("/bcmend/" in each.filename for each in traceback.extract_tb(raised.tb))


def program_that_reads_a_text(x: Tensor) -> Tensor:
    try:
        x = (x,)[1]
    except IndexError as error:
        text = str(error)
        print("what", text, file=sys.stderr)
    return x * 2


def program_that_shows_an_exception_that_no_statement_raises(x: Tensor) -> Tensor:
    try:
        x = (x,)[1]
    except IndexError as error:
        print("what", error, file=sys.stderr)
    return x * 2


@pytest.mark.parametrize(
    "program",
    [program_that_reads_a_text, program_that_shows_an_exception_that_no_statement_raises],
)
def test_a_text_that_may_be_dynamos_is_left_to_eager_execution(program: Any) -> None:
    expected = _text(program, X)
    assert "tuple index out of range" in expected
    compiled = torch.compile(bcmend.patch(program), backend="eager")
    assert _text(compiled, X) == expected
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch._dynamo.reset()
        torch.compile(program, backend="eager", fullgraph=True)(X)


class Large(ValueError):
    pass


def program_with_a_tensor_in_an_exception(x: Tensor) -> Tensor:
    try:
        raise Large(x + 1)
    except Large:
        logger.exception("large")
    return x * 2


def test_nothing_that_an_exception_held_stays_alive() -> None:
    compiled = torch.compile(bcmend.patch(program_with_a_tensor_in_an_exception), backend="eager")
    shown: list[weakref.ref[Tensor]] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            assert record.exc_info and record.exc_info[1] is not None
            shown.append(weakref.ref(record.exc_info[1].args[0]))

    handler = Keeping()
    logger.addHandler(handler)
    logger.propagate = False  # pytest keeps what it gets
    try:
        compiled(X)
    finally:
        logger.removeHandler(handler)
        logger.propagate = True
    gc.collect()
    assert [each() for each in shown] == [None]
