"""Jumps on ``None`` that are taken apart, in plain Python."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

from bcmend.analysis.facts import facts_of
from bcmend.bytecode.decode import decode
from bcmend.bytecode.opcodes import NONE_JUMPS
from bcmend.names import CALLBACK, NAMESPACE, TRACING
from bcmend.policy import DEFAULT
from bcmend.rewrite.mended import Context, Mended
from bcmend.rewrite.passes.none_tests import with_none_tests
from bcmend.rewrite.pipeline import mend
from bcmend.rewrite.sites.plan import BranchLowering
from tests.stand_ins import EverythingMended, NothingToMend, RefusedWhileTraced, with_code


def _is_none(x: Any) -> Any:
    if x is None:
        y = 1
    else:
        y = x
    return y


def _is_not_none(x: Any) -> Any:
    y = 0
    if x is not None:
        y = x
    return y


def _in_a_loop(x: Any) -> Any:
    total = None
    for each in (x, 2, None, x):
        if each is None:
            continue
        total = each if total is None else total + each
    return total


def _while(x: Any) -> Any:
    turns = 0
    while x is not None:
        turns += 1
        x = None if turns > x else x
    return turns


PROGRAMS = [_is_none, _is_not_none, _in_a_loop, _while]


def _none_jumps(function: FunctionType) -> list[int]:
    found = decode(function.__code__).instructions
    return [each.offset for each in found if each.op in NONE_JUMPS]


def _mended(function: FunctionType, names: dict[str, Any]) -> Mended:
    code = function.__code__
    asked = frozenset((id(code), each) for each in _none_jumps(function))
    return mend(code, Context(__name__, names, DEFAULT, asked=asked))


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("answers", [NothingToMend, EverythingMended, RefusedWhileTraced])
@pytest.mark.parametrize("value", [None, 3, 0])
def test_it_does_what_it_did(
    program: FunctionType, answers: Callable[[], Any], value: object
) -> None:
    names = {NAMESPACE: answers(), TRACING: lambda: True, CALLBACK: lambda: None}
    mended = with_code(program, _mended(program, names).shell, names)
    assert mended(value) == program(value)


def test_each_is_a_branch() -> None:
    sites = [site for _, site in _mended(_is_none, {}).sites]
    assert [type(site.decision) for site in sites] == [BranchLowering]
    assert [site.offset for site in sites] == _none_jumps(_is_none)


def test_others_stay_as_they_are() -> None:
    facts = facts_of(decode(_is_none.__code__))
    assert with_none_tests(facts, []) is facts
    found = with_none_tests(facts, [-5]).instructions
    assert [each.op for each in found] == [each.op for each in facts.instructions]
