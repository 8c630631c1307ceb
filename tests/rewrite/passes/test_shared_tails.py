"""Ends that CPython has written twice are one again, and nothing else is."""

from __future__ import annotations

from dataclasses import replace
from types import CodeType, FunctionType

import pytest

from bcmend.analysis.facts import Facts, facts_of
from bcmend.bytecode.assemble import assemble, labelled
from bcmend.bytecode.decode import decode
from bcmend.bytecode.instructions import FunctionCode, Instruction
from bcmend.bytecode.opcodes import row
from bcmend.rewrite.passes.shared_tails import with_shared_tails
from bcmend.rewrite.sites.plan import BranchLowering
from tests.stand_ins import EverythingMended, installed, outcome_of, sites_of

Names = dict[str, str]


def _a_function(p, x, y):
    return divmod(x if p else y, 3)


def _a_method(p, x, y):
    return x.__add__(x if p else y)


def _a_method_of_a_base(p, x, y):
    return super(bool, True).__add__(x if p else y)


def _a_keyword(p, x, y):
    return Names(key=x if p else y)


def _one_in_another(p, x, y):
    return divmod(max(x, 5), max(y, x if p else 7))


def _an_exception(p, x, y):
    raise ValueError(x if p else y)


def _three_ways(p, x, y):
    return divmod(x if p == 1 else (y if p else 11), 4)


CALLED_BEHIND = [
    _a_function,
    _a_method,
    _a_method_of_a_base,
    _a_keyword,
    _one_in_another,
    _an_exception,
    _three_ways,
]


def _copied(function: FunctionCode) -> FunctionCode:
    """Do what CPython does: write what follows a jump to a short end in its place."""
    written = list(function.instructions)
    for index, each in enumerate(function.instructions):
        if each.op == "JUMP" and isinstance(each.target, int):
            end = function.instructions[each.target :]
            last = next(n for n, ends in enumerate(end) if row(ends.op).ends)
            # What the jump went to is put behind all, and reached by the same jump.
            written[index] = each._replace(target=len(written))
            written += end[: last + 1]
    return replace(function, instructions=tuple(written))


def _assembled(function: FunctionCode) -> CodeType:
    return assemble(function.shape, *labelled(function))


def _ends(facts: Facts) -> int:
    reached = (i for i, stack in enumerate(facts.stacks) if stack is not None)
    return sum(bool(row(facts.instructions[index].op).ends) for index in reached)


@pytest.mark.parametrize("function", CALLED_BEHIND)
def test_copies_are_written_once(function: FunctionType) -> None:
    code = decode(function.__code__)
    copied = facts_of(_copied(code))
    assert _ends(copied) > 1
    shared = with_shared_tails(copied)
    assert _ends(shared) == 1
    again = FunctionType(_assembled(shared.function), function.__globals__)
    for arguments in [(0, 3, 8), (1, 3, 8), (2, 3, 0)]:
        assert outcome_of(again, *arguments) == outcome_of(function, *arguments)


@pytest.mark.parametrize("function", CALLED_BEHIND)
def test_the_arms_meet_before_the_call(function: FunctionType) -> None:
    assert all(isinstance(each.decision, BranchLowering) for each in sites_of(function))
    mended = installed(function, EverythingMended())
    for arguments in [(0, 3, 8), (1, 3, 8), (2, 3, 0)]:
        assert outcome_of(mended, *arguments) == outcome_of(function, *arguments)


def _calls_of_their_own(p, x, y):
    if p:
        return divmod(x, 3)
    return divmod(x, 3)


def _no_call(p, x, y):
    return x if p else y


def _called_before(p, x, y):
    return [divmod(x, 3), x if p else y]


@pytest.mark.parametrize("function", [_calls_of_their_own, _no_call, _called_before])
def test_other_ends_stay_apart(function: FunctionType) -> None:
    copied = facts_of(_copied(decode(function.__code__)))
    assert with_shared_tails(copied) is copied


def test_an_end_elsewhere_in_the_source_stays_apart() -> None:
    copied = _copied(decode(_a_function.__code__))
    *others, call, returns = copied.instructions
    instructions = (*others, _on_the_next_line(call), _on_the_next_line(returns))
    facts = facts_of(replace(copied, instructions=instructions))
    assert with_shared_tails(facts) is facts


def _on_the_next_line(instruction: Instruction) -> Instruction:
    place = instruction.location
    assert place is not None and place.lineno is not None
    return instruction._replace(location=place._replace(lineno=place.lineno + 1))
