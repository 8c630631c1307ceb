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

from bcmend.analysis.facts import Facts
from bcmend.analysis.flags import flags_of, tested_local
from bcmend.cfg.dominance import EXIT, immediate_post_dominators
from bcmend.cfg.graph import walk
from bcmend.cfg.regions import Branch

__all__ = ["joined_at", "over_flags", "wider_forms"]


def over_flags(facts: Facts, branch: Branch) -> Branch:
    """Return ``branch`` up to the first join at which no flag that it sets is tested.

    Returns ``branch`` itself where there is nothing to widen it over.
    """
    if branch.join == EXIT or branch.taken_raises or branch.fallthrough_raises:
        return branch
    flags = flags_of(facts, branch)
    if not flags or tested_local(facts, branch.join) not in flags:
        return branch
    post_dominators = immediate_post_dominators(facts.graph)
    join = branch.join
    while join != EXIT and tested_local(facts, join) in flags:
        after = post_dominators[join]
        join = EXIT if after is None else after
    return joined_at(facts, branch, join)


def wider_forms(facts: Facts, branch: Branch) -> Iterator[Branch]:
    """Yield ``branch`` up to the next turn of the loop that it is in, then up to the return."""
    if branch.join == EXIT:
        return
    post_dominators = immediate_post_dominators(facts.graph)
    here = facts.graph.block_of[branch.jump]
    join = post_dominators[branch.join]
    while join is not None and join != EXIT:
        if _begins_a_turn(facts, join, here):
            yield joined_at(facts, branch, join)
            break
        join = post_dominators[join]
    yield joined_at(facts, branch, EXIT)


def _begins_a_turn(facts: Facts, block: int, inside: int) -> bool:
    """Whether ``block`` is the header of a loop around the block ``inside``."""
    return block <= inside <= max(facts.graph.predecessors[block], default=-1)


def joined_at(facts: Facts, branch: Branch, join: int) -> Branch:
    """Return ``branch`` with another join."""
    successors = facts.graph.successors
    return replace(
        branch,
        join=join,
        taken_blocks=walk(branch.taken, successors, join),
        fallthrough_blocks=walk(branch.fallthrough, successors, join),
    )
