"""What an output call shows of its callers and of exceptions."""

from __future__ import annotations

import logging
import sys
import traceback
import warnings
from typing import Any

import pytest

from bcmend.analysis.facts import Facts, facts_of
from bcmend.bytecode.decode import decode
from bcmend.bytecode.opcodes import CALLS, row
from bcmend.rewrite.sites.call_parts import start_of
from bcmend.rewrite.sites.shown_frames import shows_callers, shows_tracebacks, stack_level


def _call(function: Any) -> tuple[Facts, int, int]:
    facts = facts_of(decode(function.__code__))
    call = max(i for i, each in enumerate(facts.instructions) if each.op in CALLS)
    instruction = facts.instructions[call]
    start = start_of(facts, call, row(instruction.op).effect(instruction.arg)[0])
    assert start is not None
    return facts, start, call


def _plain(log, x):
    log.info(x)


def _with_stack(log, x):
    log.info(x, stack_info=True)


def _without_stack(log, x):
    log.info(x, stack_info=False)


def _perhaps_with_stack(log, x):
    log.info(x, stack_info=x)


@pytest.mark.parametrize(
    ("function", "shows"),
    [(_plain, False), (_with_stack, True), (_without_stack, False), (_perhaps_with_stack, True)],
)
def test_whether_callers_are_shown(function: Any, shows: bool) -> None:
    assert shows_callers(*_call(function)) is shows


def _with_exception(log, x):
    log.error(x, exc_info=True)


def _without_exception(log, x):
    log.error(x, exc_info=0)


def _exception(log, x):
    log.exception(x)


def _formats_it(log, x):
    print(traceback.format_exc())


def _asks_for_it(log, x):
    print(sys.exc_info()[0])


def _unpacked_for_a_logger(log, x):
    log.error(*x)


def _unpacked_for_print(log, x):
    print(*x)


@pytest.mark.parametrize(
    ("function", "shows"),
    [
        (_plain, False),
        (_with_exception, True),
        (_without_exception, False),
        (_exception, True),
        (_formats_it, True),
        (_asks_for_it, True),
        (_unpacked_for_a_logger, True),
        (_unpacked_for_print, False),
    ],
)
def test_whether_tracebacks_are_shown(function: Any, shows: bool) -> None:
    assert shows_tracebacks(*_call(function)) is shows


def _warns(x):
    warnings.warn(x)  # noqa: B028


def _warns_the_caller(x):
    warnings.warn(x, stacklevel=2)


def _warns_by_position(x):
    warnings.warn(x, UserWarning, 3)


def _warns_somebody(x):
    warnings.warn(x, stacklevel=x)


def _warns_nobody(x):
    warnings.warn(x, stacklevel=0)


def _logs_the_caller(x):
    logging.info(x, stacklevel=4)


def _other_files(x):
    warnings.warn(x, skip_file_prefixes=("/a",))


def _unpacks_other_files(x):
    warnings.warn(x, **{"skip_file_prefixes": ("/a",), **x})


def _unpacks_a_level(x):
    logging.info(x, **{"stacklevel": 2, **x})


def _unpacks(x):
    logging.info(*x)


def _prints_the_stack(x):
    traceback.print_stack(limit=3)


def _prints_the_stack_by_position(x):
    traceback.print_stack(None, 2)


def _prints_the_whole_stack(x):
    traceback.print_stack()


def _prints_the_stack_of_a_frame(x):
    traceback.print_stack(x, 2)


def _prints_the_outermost_frames(x):
    traceback.print_stack(limit=-2)


@pytest.mark.parametrize(
    ("function", "level"),
    [
        (_warns, 1),
        (_warns_the_caller, 2),
        (_warns_by_position, 3),
        (_warns_somebody, -1),
        (_warns_nobody, 1),
        (_logs_the_caller, 4),
        (_unpacks_a_level, -1),
        (_other_files, None),
        (_unpacks_other_files, None),
        (_unpacks, 1),
        (_prints_the_stack, 3),
        (_prints_the_stack_by_position, 2),
        (_prints_the_whole_stack, None),
        (_prints_the_stack_of_a_frame, None),
        (_prints_the_outermost_frames, None),
    ],
)
def test_how_many_frames_are_shown(function: Any, level: int | None) -> None:
    assert stack_level(*_call(function)) == level
