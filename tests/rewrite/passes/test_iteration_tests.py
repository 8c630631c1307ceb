"""Loops that may leave out iterations, in plain Python."""

from __future__ import annotations

import dis
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

from bcmend.names import CALLBACK, NAMESPACE, TRACING
from bcmend.policy import DEFAULT
from bcmend.rewrite.mended import Context, Mended
from bcmend.rewrite.pipeline import mend
from bcmend.rewrite.sites.plan import BranchLowering
from tests.stand_ins import EverythingMended, NothingToMend, RefusedWhileTraced, with_code


class _Answers(NothingToMend):
    """Says of each iteration, in their order, whether it runs."""

    def answer(self, iterations: list[bool]) -> None:
        self.iterations = list(iterations)

    def runs_iteration(self) -> bool:
        return self.iterations.pop(0) if self.iterations else True


class _AnswersMended(EverythingMended, _Answers):
    """The branch around the body is mended."""


class _AnswersRefused(RefusedWhileTraced, _Answers):
    """The branch around the body is tried, and the jump stays."""


def _sums(items: list[int], log: list[int]) -> int:
    total = 0
    for item in items:
        log.append(item)
        total += item
    return total


def _ends(items: list[int], log: list[int]) -> str:
    for item in items:
        if item > 2:
            break
        log.append(item)
    else:
        return "exhausted"
    return "left"


def _goes_on(items: list[int], log: list[int]) -> list[int]:
    for item in items:
        if item == 2:
            continue
        log.append(item)
    return log


def _unpacks(items: list[int], log: list[int]) -> int:
    total = 0
    for one, other in [(each, -each) for each in items]:
        log.append(other)
        total += one
    return total


def _in_a_try(items: list[int], log: list[int]) -> str:
    for item in items:
        try:
            log.append(10 // (item - 1))
        except ZeroDivisionError:
            log.append(0)
    return "done"


def _under_an_operand(items: list[int], log: list[int]) -> int:
    def last() -> int:
        found = -1
        for item in items:
            log.append(item)
            found = item
        return found

    return 3 * last() + len(log)


PROGRAMS = [_sums, _ends, _goes_on, _unpacks, _in_a_try, _under_an_operand]


def _loops_of(code: Any) -> frozenset[tuple[int, int]]:
    found = {(id(code), each.offset) for each in dis.get_instructions(code) if _is_loop(each)}
    for constant in code.co_consts:
        if hasattr(constant, "co_code"):
            found |= _loops_of(constant)
    return frozenset(found)


def _is_loop(instruction: dis.Instruction) -> bool:
    return instruction.opname == "FOR_ITER"


def _mended(function: FunctionType) -> Mended:
    return mend(
        function.__code__, Context("module", {}, DEFAULT, masked_loops=_loops_of(function.__code__))
    )


def _leaving_out(function: FunctionType, answers: _Answers) -> Callable[..., Any]:
    names = {
        **function.__globals__,
        NAMESPACE: answers,
        TRACING: lambda: True,
        CALLBACK: lambda: None,
    }
    return with_code(function, _mended(function).shell, names)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("kind", [_Answers, _AnswersMended, _AnswersRefused])
@pytest.mark.parametrize(
    "iterations", [[], [True, False, True, False], [False] * 4, [False, True, True, True]], ids=str
)
def test_iterations_that_are_not_made_leave_no_trace(
    program: Any, kind: type[_Answers], iterations: list[bool]
) -> None:
    items = [0, 1, 2, 3]
    if program is _unpacks:
        iterations = []  # the list that it goes over is another loop
    made = [item for item, is_made in zip(items, iterations or [True] * 4, strict=True) if is_made]
    answers = kind()
    answers.answer(iterations)
    expected_log: list[int] = []
    log: list[int] = []
    expected = program(made, expected_log)
    result = _leaving_out(program, answers)(items, log)
    assert (log, result) == (expected_log, expected)


def test_the_question_is_a_branch_at_the_loop() -> None:
    (found,) = _mended(_sums).sites
    _, site = found
    assert isinstance(site.decision, BranchLowering)
    assert (site.kind, site.line) == ("branch", _sums.__code__.co_firstlineno + 2)


def test_a_loop_that_nobody_asked_about_stays() -> None:
    assert mend(_sums.__code__, Context("module", {}, DEFAULT)).sites == ()
