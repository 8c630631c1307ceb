"""Branches of which one arm raises what the function itself handles."""

from __future__ import annotations

from typing import Any

from bcmend.analysis.facts import Facts, facts_of
from bcmend.bytecode.decode import decode
from bcmend.cfg.dominance import EXIT
from bcmend.cfg.regions import Branch
from bcmend.rewrite.sites.caught import propose_caught
from bcmend.rewrite.sites.plan import BranchLowering


def _first(function: Any) -> tuple[Facts, Branch]:
    facts = facts_of(decode(function.__code__))
    return facts, facts.branches[0]


def _line_of(facts: Facts, block: int, first: int) -> int | None:
    location = facts.instructions[facts.graph.blocks[block].start].location
    return None if location is None or location.lineno is None else location.lineno - first


def _handles(x: Any) -> Any:
    y = 0
    try:
        if x.any():
            raise ValueError(x)
    except ValueError:
        y = 1
    return max(x, y, key=len)


def test_the_arms_meet_behind_the_try_statement() -> None:
    facts, branch = _first(_handles)
    found = propose_caught(facts, branch)
    assert isinstance(found, BranchLowering)
    assert _line_of(facts, found.join, _handles.__code__.co_firstlineno) == 7
    assert found.outputs == ("y",)
    handlers = {facts.graph.handler_block(branch.taken), facts.graph.handler_block(1)} - {None}
    assert handlers <= found.blocks


def test_the_arms_meet_in_the_return_where_the_handler_returns() -> None:
    def f(x: Any) -> Any:
        try:
            if x.any():
                raise ValueError(x)
        except ValueError:
            return 1
        return 2

    found = propose_caught(*_first(f))
    assert isinstance(found, BranchLowering) and found.join == EXIT


def test_without_a_handler_there_is_nothing_to_propose() -> None:
    def f(x: Any) -> Any:
        if x.any():
            raise ValueError(x)
        return x

    assert propose_caught(*_first(f)) is None


def test_a_handler_that_always_raises_takes_nothing_over() -> None:
    def f(x: Any, log: Any) -> Any:
        try:
            if x.any():
                raise ValueError(x)
        finally:
            log.append(x)
        return x

    assert propose_caught(*_first(f)) is None
