"""Move the join of a branch further down, so that its arms share less.

Where the live-outs of the arms have no common form (None and a tensor, two numbers), the code that
distinguishes them has to become part of the arms: up to the end of the iteration of a loop, or up
to the end of the function. In ``if p < 0.5: drop = True`` and then ``if drop:`` no tensor can stand
for the flag; but where the later test is part of both arms, the flag has one value in each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bcmend.analysis.facts import Facts
from bcmend.analysis.flags import flags_of, tested_local
from bcmend.cfg.dominance import EXIT
from bcmend.cfg.graph import walk
from bcmend.cfg.regions import Branch


def over_flags(facts: Facts, branch: Branch) -> Branch:
    """Return ``branch`` up to the first join at which no flag that it sets is tested."""
    if branch.join == EXIT or branch.taken_raises or branch.fallthrough_raises:
        return branch
    flags = flags_of(facts, branch)
    post_dominators = facts.post_dominators
    join = branch.join
    while join != EXIT and tested_local(facts, join) in flags:
        after = post_dominators[join]
        join = EXIT if after is None else after
    return branch if join == branch.join else joined_at(facts, branch, join)


def wider_forms(facts: Facts, branch: Branch) -> Iterator[Branch]:
    """Yield ``branch`` up to the next iteration of its loop, then up to the return."""
    if branch.join == EXIT:
        return
    post_dominators = facts.post_dominators
    here = facts.graph.block_of[branch.jump]
    join = post_dominators[branch.join]
    while join is not None and join != EXIT:
        if join <= here <= max(facts.graph.predecessors[join], default=-1):  # of a loop around it
            yield joined_at(facts, branch, join)
            break
        join = post_dominators[join]
    yield joined_at(facts, branch, EXIT)


def joined_at(facts: Facts, branch: Branch, join: int) -> Branch:
    """Return ``branch`` with another join."""
    successors = facts.graph.successors
    return replace(
        branch,
        join=join,
        taken_blocks=walk(branch.taken, successors, join),
        fallthrough_blocks=walk(branch.fallthrough, successors, join),
    )
