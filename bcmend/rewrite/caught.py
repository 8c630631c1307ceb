"""Propose to mend a branch of which one arm raises an exception that the function itself handles.

Such an arm is no guard: control comes back. With the handler as its continuation it is an arm like
any other, that meets the other one behind the ``try`` statement, or in the return.
"""

from __future__ import annotations

from collections.abc import Sequence

from bcmend.analysis.facts import Facts
from bcmend.cfg.dominance import EXIT, always_raises, immediate_post_dominators
from bcmend.cfg.graph import decoded_index
from bcmend.cfg.regions import Branch
from bcmend.rewrite.branch import propose_between
from bcmend.rewrite.plan import BranchLowering, Refusal
from bcmend.rewrite.widen import joined_at

__all__ = ["propose_caught"]


def propose_caught(facts: Facts, branch: Branch) -> BranchLowering | Refusal | None:
    """Propose a region with the handler in it; ``None`` where no handler takes over."""
    over = facts.handlers_over(branch.jump)
    handlers = {
        facts.graph.block_of[decoded_index(facts.function.tries[each].handler)] for each in over
    }
    if not handlers - always_raises(facts.graph):
        return None
    post_dominators = immediate_post_dominators(facts.graph)
    goes_on = branch.fallthrough if branch.taken_raises else branch.taken
    behind = [_onwards(post_dominators, each) for each in handlers]
    for join in _onwards(post_dominators, goes_on):
        if all(join in each for each in behind) and not _is_under(facts, join, over):
            return propose_between(facts, joined_at(facts, branch, join))
    return None


def _onwards(post_dominators: Sequence[int | None], block: int) -> list[int]:
    """Return the blocks that every way from ``block`` to the return passes, in order."""
    found = [block]
    while (after := post_dominators[found[-1]]) is not None and after != EXIT:
        found.append(after)
    return [*found, EXIT]


def _is_under(facts: Facts, join: int, over: Sequence[int]) -> bool:
    """Whether a join is still in the range of handlers."""
    if join == EXIT:
        return False
    return not set(over).isdisjoint(facts.handlers_over(facts.graph.blocks[join].start))
