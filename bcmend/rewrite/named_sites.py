"""Name the sites of a function, and record the instructions that each covers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import CodeType

from bcmend.analysis.facts import Facts
from bcmend.bytecode.instructions import decoded_index
from bcmend.bytecode.opcodes import LOOPS, row
from bcmend.knowledge import opt_out
from bcmend.names import SPLIT
from bcmend.rewrite.decisions import Decision
from bcmend.rewrite.mended import Context
from bcmend.rewrite.sites.plan import BranchLowering, Lowering, Plan, Site, SiteRefusal


def named_plan(
    code: CodeType,
    facts: Facts,
    decisions: Iterable[Decision],
    context: Context,
    names: Counter[str],
) -> Plan:
    """Return the plan for one code object, with a name for every site."""
    prefix = f"{context.module}.{code.co_qualname}"
    lines_off = opt_out.lines_off(code.co_filename, context.names)
    sites = []
    for index, kind, decision in decisions:
        instruction = facts.instructions[index]
        line = None if instruction.location is None else instruction.location.lineno
        name = f"{prefix}:{line}:{kind}"
        names[name] += 1
        if names[name] > 1:
            name = f"{name}#{names[name]}"
        if context.policy.is_off(name):
            decision = SiteRefusal("switched-off")
        elif line in lines_off:
            decision = SiteRefusal("switched-off", "by a comment in the source")
        name = context.key_for(name, code)
        inside = _inside(facts, decision)
        sites.append(Site(name, kind, index, line, instruction.offset, decision, inside))
    return Plan(_with_places(facts, sites))


def _with_places(facts: Facts, sites: Sequence[Site]) -> tuple[Site, ...]:
    """Return the sites, with places for branches that an iteration of a loop comes back to.

    Such a branch stands twice, before the loop and in it, and both get the same place: its entries
    and its join, past blocks that only jump.
    """
    places, in_loops = {}, set()
    for site in sites:
        branch, may_end_a_loop = site.decision, facts.instructions[site.index].op in LOOPS
        if isinstance(branch, BranchLowering) and (site.kind != SPLIT or may_end_a_loop):
            entries = (_past_jumps(facts, branch.then_entry), _past_jumps(facts, branch.else_entry))
            places[site.name] = place = (*entries, branch.join)
            if facts.graph.block_of[site.index] in branch.blocks:
                in_loops.add(place)
    return tuple(
        replace(each, place=places[each.name]) if places.get(each.name) in in_loops else each
        for each in sites
    )


def _past_jumps(facts: Facts, block: int) -> int:
    """Return the first block from ``block`` on that does more than jump.

    Python 3.12 puts blocks with nothing but a jump before the next iteration of a loop.
    """
    graph = facts.graph
    for _ in graph.blocks:
        first, last = graph.blocks[block].start, graph.last(block)
        instruction = facts.instructions[first]
        if first != last or instruction.target is None or row(instruction.op).falls_through:
            break
        block = graph.block_of[decoded_index(instruction.target)]
    return block


def _inside(
    facts: Facts, decision: Lowering | SiteRefusal
) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return the first and last offset of each block of the arms, for each form of a branch."""
    if not isinstance(decision, BranchLowering):
        return ()
    offsets = [
        [each.offset for each in facts.instructions[block.start : block.end] if each.offset >= 0]
        for block in facts.graph.blocks
    ]
    return tuple(
        tuple((offsets[block][0], offsets[block][-1]) for block in sorted(form.blocks))
        for form in decision.alternatives
    )
