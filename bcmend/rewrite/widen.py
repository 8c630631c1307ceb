"""Move the join of a branch further down, so that its arms share less.

Where the arms leave values behind that no single value can stand for (None and a tensor, two
numbers), the code that tells them apart has to become part of the arms: up to the end of the turn
of a loop, or up to the end of the function.

``if p < 0.5: drop = True`` and then ``if drop:`` are one decision in two steps. No tensor can stand
for the flag, which is a Python object; but where the later test is part of both arms, the flag has
one value in each. Reads a branch; produces the same branch with other joins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from bcmend.analysis.facts import Facts
from bcmend.cfg.dominance import EXIT, immediate_post_dominators
from bcmend.cfg.graph import walk
from bcmend.cfg.regions import Branch
from bcmend.codeobj.opcodes import row

__all__ = ["over_flags", "wider_forms"]

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
    return _joined_at(facts, branch, join)


def wider_forms(facts: Facts, branch: Branch) -> Iterator[Branch]:
    """Yield ``branch`` up to the next turn of the loop that it is in, then up to the return."""
    if branch.join == EXIT:
        return
    post_dominators = immediate_post_dominators(facts.graph)
    here = facts.graph.block_of[branch.jump]
    join = post_dominators[branch.join]
    while join is not None and join != EXIT:
        if _begins_a_turn(facts, join, here):
            yield _joined_at(facts, branch, join)
            break
        join = post_dominators[join]
    yield _joined_at(facts, branch, EXIT)


def _begins_a_turn(facts: Facts, block: int, inside: int) -> bool:
    """Whether ``block`` is the header of a loop around the block ``inside``."""
    return block <= inside <= max(facts.graph.predecessors[block], default=-1)


def _joined_at(facts: Facts, branch: Branch, join: int) -> Branch:
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
