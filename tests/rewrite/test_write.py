"""Mended bodies do what their originals do, on every way through them."""

from __future__ import annotations

import copy
from types import FunctionType
from typing import Any

import pytest
from tests.rewrite.programs import PROGRAMS, Derived, Program
from tests.stand_ins import (
    EverythingMended,
    NothingToMend,
    Outcome,
    RefusedWhileTraced,
    TakenBack,
    installed,
    outcome_of,
)


def _outcomes(program: Program, function: FunctionType, logs: list[list[object]]) -> list[Any]:
    outcomes = []
    for arguments, log in zip(program.calls, logs, strict=True):
        given = copy.deepcopy(arguments)
        given = (log, *given) if program.takes_log else given
        outcomes.append((_comparable(outcome_of(function, *given)), given, log))
    return outcomes


def _comparable(outcome: Outcome) -> tuple[str, object]:
    return repr(outcome.value), outcome.error


def _logs(program: Program) -> list[list[object]]:
    return [[] for _ in program.calls]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("answers", [NothingToMend, EverythingMended, RefusedWhileTraced])
def test_a_body_does_what_its_original_does(name: str, answers: type[NothingToMend]) -> None:
    program, primitives = PROGRAMS[name], answers()
    expected = _outcomes(program, program.function, _logs(program))
    mended = installed(program.function, primitives)
    assert _outcomes(program, mended, _logs(program)) == expected
