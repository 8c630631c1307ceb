"""Propose to mend a branch of which one arm raises an exception that the function itself handles.

With the handler as its continuation it is an arm like any other, which joins the other one behind
the ``try`` statement, or in the return.
"""

from __future__ import annotations

from collections.abc import Sequence

from bcmend.analysis.facts import Facts
from bcmend.bytecode.instructions import decoded_index
from bcmend.cfg.dominance import EXIT, always_raises
from bcmend.cfg.regions import Branch
from bcmend.rewrite.sites.branch import propose_between
from bcmend.rewrite.sites.plan import BranchLowering, SiteRefusal
from bcmend.rewrite.sites.widen import joined_at


def propose_caught(facts: Facts, branch: Branch) -> BranchLowering | SiteRefusal | None:
    """Propose a region with the handler in it; ``None`` where no handler takes over."""
    over = facts.handlers_over(branch.jump)
    handlers = {
        facts.graph.block_of[decoded_index(facts.function.tries[each].handler)] for each in over
    }
    if not handlers - always_raises(facts.graph):
        return None
    post_dominators = facts.post_dominators
    continues_at = branch.fallthrough if branch.taken_raises else branch.taken
    behind = [_onwards(post_dominators, each) for each in handlers]
    for join in _onwards(post_dominators, continues_at):
        if all(join in each for each in behind) and not _is_under(facts, join, over):
            return propose_between(facts, joined_at(facts, branch, join))
    return None


def _onwards(post_dominators: Sequence[int | None], block: int) -> list[int]:
    """Return the blocks that every path from ``block`` to the return passes, in order."""
    found = [block]
    while (after := post_dominators[found[-1]]) is not None and after != EXIT:
        found.append(after)
    return [*found, EXIT]


def _is_under(facts: Facts, join: int, over: Sequence[int]) -> bool:
    """Return whether a join is still in the range of handlers."""
    start = facts.graph.blocks[join].start
    return join != EXIT and not set(over).isdisjoint(facts.handlers_over(start))
