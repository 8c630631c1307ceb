"""The region functions of one function: which branches share each, and what each needs.

A region function is entered at any of the arms that meet at one join, by number, and is given
itself as an argument: a branch inside it that meets at the same join calls it again. So the code of
a function grows with its length however many early returns it has, and an arm may go round the loop
that it is in.
"""

from __future__ import annotations

from bcmend.analysis.facts import Facts
from bcmend.rewrite.sites.plan import BranchLowering, Plan, RegionKey, Site


class RegionTable:
    """The regions of a plan, each with the branches that enter it."""

    def __init__(self, facts: Facts, plan: Plan) -> None:
        self._facts = facts
        self._sites = (*plan.lowerings.values(), *plan.splits.values())
        #: The branches that share a region function, in the order of their entries.
        self.members: dict[RegionKey, list[BranchLowering]] = {}
        for site in self._sites:
            for form in _forms(site):
                self.members.setdefault(form.region, []).append(form)

    def entry_of(self, form: BranchLowering) -> int:
        """Return the number of the entry at the arm of a true condition; the other arm is next."""
        return 2 * self.members[form.region].index(form)

    def blocks_of(self, key: RegionKey) -> frozenset[int]:
        """Return the blocks of all arms of a region."""
        return frozenset().union(*(member.blocks for member in self.members[key]))

    def first_of(self, key: RegionKey) -> tuple[str, ...]:
        """Return the function's first argument, where code in the region calls ``super()``."""
        return next((each.first for each in self._all_of(key) if each.first), ())

    def cells_of(self, key: RegionKey) -> tuple[str, ...]:
        """Return the cells that a region and the regions called in it need."""
        return tuple(sorted({name for each in self._all_of(key) for name in each.cells}))

    def _all_of(self, key: RegionKey) -> list[BranchLowering]:
        """Return the branches of a region, and of the regions that its code may call."""
        found = [key]
        for known in found:
            here = self.blocks_of(known)
            within = (s for s in self._sites if self._facts.graph.block_of[s.index] in here)
            called = (form.region for site in within for form in _forms(site))
            found.extend(each for each in dict.fromkeys(called) if each not in found)
        return [member for each in found for member in self.members[each]]


def _forms(site: Site) -> tuple[BranchLowering, ...]:
    return site.decision.alternatives if isinstance(site.decision, BranchLowering) else ()
