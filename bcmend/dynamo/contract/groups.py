"""What bcmend can do without, group by group, where torch is not what a group was written for.

A group is a set of modules of bcmend that declare hooks. Without it, an arm that comes to what its
hooks stand in front of is refused, and everywhere else torch's own method runs, as in programs that
are not patched. So a group holds only hooks that make something of what torch would break the graph
at, or that look at what an arm does. All other modules are the core, without which nothing works.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from bcmend.dynamo.contract.difference import Difference

CORE: Final = "core"

_OPTIONAL: Final = """
any and all over tensors: handlers.any_all
recurrent layers: recurrent.layers
questions to loggers: handlers.loggers
elided contexts: substitutes.elided_contexts
items at data-dependent places: indexing.open_places
ranges of data-dependent length: loops.open_ranges
numbers that are inputs: numbers.number_inputs
hooks registered in arms: speculation.hooks_in_arms
generators called in arms: speculation.iterators
backward functions traced in arms: speculation.traced_backwards
backward functions of a tensor given twice: gradients.repeated_arguments
modules and classes made in arms: speculation.done_while_tracing
"""
#: The modules of each optional group.
OPTIONAL: Final[dict[str, frozenset[str]]] = {
    group.strip(): frozenset(f"bcmend.tracing.{each}" for each in modules.split())
    for group, _, modules in (line.partition(":") for line in _OPTIONAL.strip().splitlines())
}
_GROUPS: Final = {module: group for group, modules in OPTIONAL.items() for module in modules}


def group_of(module: str) -> str:
    """Return the group of a module of bcmend; ``CORE`` for all that are in none."""
    return _GROUPS.get(module, CORE)


def concerned(differences: Iterable[Difference]) -> dict[str, list[Difference]]:
    """Return the differences by the groups that rely on what has changed."""
    found: dict[str, list[Difference]] = {}
    for each in differences:
        for group in dict.fromkeys(map(group_of, each.needed_by)):
            found.setdefault(group, []).append(each)
    return found
