"""Widen a branch over the tests of the flags that its arms set.

``if p < 0.5: drop = True`` and then ``if drop:`` are one decision in two steps. No tensor can stand
for the flag, which is a Python object; but where the later test is part of both arms, the flag has
one value in each. Reads a branch; produces the same branch with its join further down.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from bcmend.analysis.facts import Facts
from bcmend.cfg.dominance import EXIT, immediate_post_dominators
from bcmend.cfg.graph import walk
from bcmend.cfg.regions import Branch
from bcmend.codeobj.opcodes import row

__all__ = ["over_flags"]

#: Between a flag and the jump that tests it.
_TESTS: Final = frozenset(["TO_BOOL", "UNARY_NOT"])


def over_flags(facts: Facts, branch: Branch) -> Branch:
    """Return ``branch`` up to the first join at which no flag that it sets is tested.

    Returns ``branch`` itself where there is nothing to widen it over.
    """
    if branch.join == EXIT or branch.taken_raises or branch.fallthrough_raises:
        return branch
    flags = _flags(facts, branch)
    if not flags or _tested(facts, branch.join) not in flags:
        return branch
    post_dominators = immediate_post_dominators(facts.graph)
    join = branch.join
    while join != EXIT and _tested(facts, join) in flags:
        after = post_dominators[join]
        join = EXIT if after is None else after
    successors = facts.graph.successors
    return replace(
        branch,
        join=join,
        taken_blocks=walk(branch.taken, successors, join),
        fallthrough_blocks=walk(branch.fallthrough, successors, join),
    )


def _tested(facts: Facts, block: int) -> str:
    """Return the local that the jump at the end of ``block`` tests; empty if it is another test."""
    index = facts.graph.last(block)
    if not row(facts.instructions[index].op).jump:
        return ""
    start = facts.graph.blocks[block].start
    index -= 1
    while index > start and facts.instructions[index].op in _TESTS:
        index -= 1
    instruction = facts.instructions[index]
    return str(instruction.arg) if row(instruction.op).reads == "local" else ""


def _flags(facts: Facts, branch: Branch) -> frozenset[str]:
    """Return the locals that an arm sets to True, False or None, unless both set the same."""
    taken = _constants_set(facts, branch.taken_blocks)
    other = _constants_set(facts, branch.fallthrough_blocks)
    return frozenset(
        name
        for name in taken.keys() | other.keys()
        if len(taken.get(name, set())) != 1 or taken.get(name) != other.get(name)
    )


def _constants_set(facts: Facts, blocks: frozenset[int]) -> dict[str, set[bool | None]]:
    found: dict[str, set[bool | None]] = {}
    for index in facts.indices_of(blocks):
        name = facts.instructions[index].arg
        if row(facts.instructions[index].op).writes != "local" or index == 0:
            continue
        before = facts.instructions[index - 1]
        if before.op == "LOAD_CONST" and (before.arg is None or isinstance(before.arg, bool)):
            found.setdefault(name, set()).add(before.arg)
    return found
