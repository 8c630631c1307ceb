"""Which blocks are known never to swallow an exception, and what is left out behind them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any

import pytest

from bcmend.analysis.facts import Facts, facts_of
from bcmend.bytecode.decode import decode
from bcmend.names import UNBOUND
from bcmend.rewrite.passes.swallowing import asks_for_swallowing, without_swallowing
from bcmend.rewrite.sites.plan import BranchLowering
from tests.stand_ins import EverythingMended, installed, outcome_of, sites_of

torch: Any = SimpleNamespace(no_grad=contextlib.nullcontext, autocast=contextlib.nullcontext)


def _known(x):
    with torch.no_grad():
        y = 1 // x
    return y


def _known_by_keyword(x):
    with torch.autocast(enter_result=x):
        y = 1 // x
    return y


def _known_by_a_variable(x):
    context = torch.no_grad() if x else contextlib.nullcontext()
    with context as y:
        y = 1 // x
    return y


def _a_parameter(x, context):
    with context:
        y = 1 // x
    return y


def _one_of_two(x):
    context = torch.no_grad() if x else contextlib.suppress(ValueError)
    with context:
        y = 1 // x
    return y


def _may_swallow(x):
    with contextlib.suppress(ZeroDivisionError):
        y = 1 // x
    return y


KNOWN = [_known, _known_by_keyword, _known_by_a_variable]
UNKNOWN = [_a_parameter, _one_of_two, _may_swallow]


def _facts(function: FunctionType) -> Facts:
    return facts_of(decode(function.__code__))


def _tests(facts: Facts) -> int:
    return sum(asks_for_swallowing(facts, each.jump) for each in facts.branches)


@pytest.mark.parametrize("function", KNOWN)
def test_a_known_block_raises_again(function: FunctionType) -> None:
    facts = _facts(function)
    assert _tests(facts) == 1
    assert _tests(without_swallowing(facts)) == 0


@pytest.mark.parametrize("function", UNKNOWN)
def test_another_block_is_left_alone(function: FunctionType) -> None:
    facts = _facts(function)
    assert without_swallowing(facts) is facts
    assert _tests(facts) == 1


def _bound_in_a_known_block(x, y):
    if x:
        with torch.no_grad():
            z = x // y
    else:
        z = y
    if z:
        z += 1
    return z


def _bound_in_another_block(x, y):
    if x:
        with contextlib.suppress(ZeroDivisionError):
            z = x // y
    else:
        z = y
    return max(z, x)


def test_what_a_known_block_binds_is_bound_behind_it() -> None:
    assert all(
        isinstance(each.decision, BranchLowering) for each in sites_of(_bound_in_a_known_block)
    )
    mended = installed(_bound_in_a_known_block, EverythingMended())
    for arguments in [(0, 0), (0, 2), (3, 2), (3, 0)]:
        assert outcome_of(mended, *arguments) == outcome_of(_bound_in_a_known_block, *arguments)


def test_what_another_block_binds_has_a_mark_while_it_may_be_unbound() -> None:
    def marked(function: FunctionType) -> bool:
        return any(UNBOUND in each.co_consts for each in _all_code(installed(function, None)))

    assert marked(_bound_in_another_block)
    assert not marked(_bound_in_a_known_block)


def _all_code(function: FunctionType) -> Iterator[CodeType]:
    pending = [function.__code__]
    while pending:
        code = pending.pop()
        yield code
        pending.extend(each for each in code.co_consts if isinstance(each, CodeType))
