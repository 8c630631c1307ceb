"""Propose to mend a conditional jump: as a branch between two arms, or as a guard.

An arm becomes a function of its own: what it reads of the frame are its arguments, what it binds
and is read later its results. It may not look at the frame, may not touch operands that were there
before it, and may not leave by another way than the join (or, where both arms end in a return, by
returning).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bcmend.analysis.effects import Touched, touched
from bcmend.analysis.facts import Facts
from bcmend.analysis.liveness import bound_before, live_into, maybe_bound_before
from bcmend.cfg.dominance import EXIT
from bcmend.cfg.graph import walk
from bcmend.cfg.regions import Branch
from bcmend.codeobj.decode import Instruction
from bcmend.codeobj.opcodes import row
from bcmend.rewrite.plan import ArmRegion, BranchLowering, GuardLowering, Refusal

__all__ = ["propose_branch", "propose_guard"]


def propose_guard(facts: Facts, branch: Branch) -> GuardLowering | Refusal:
    """Propose the deferral of the arm that always raises."""
    raising = branch.taken if branch.taken_raises else branch.fallthrough
    blocks = branch.taken_blocks if branch.taken_raises else branch.fallthrough_blocks
    goes_on = branch.fallthrough if branch.taken_raises else branch.taken
    region = _region(facts, branch.jump, raising, blocks, EXIT)
    if isinstance(region, Refusal):
        return region
    if not _always_raising(facts, region.blocks):
        return Refusal("return-in-try", "the arm handles its own exception")
    touches = touched(facts, facts.indices_of(region.blocks))
    refusal = _unmovable(touches)
    if refusal is not None:
        return refusal
    inputs = _inputs(facts, branch.jump, (region,), touches, ())
    if isinstance(inputs, Refusal):
        return inputs
    jumps_if = row(facts.instructions[branch.jump].op).jump == "if_true"
    raises_if = jumps_if if branch.taken_raises else not jumps_if
    cells = tuple(sorted(touches.cells))
    return GuardLowering(branch.jump, region, raises_if, goes_on, inputs, cells)


def propose_branch(facts: Facts, branch: Branch) -> BranchLowering | Refusal:
    """Propose two outlined arms."""
    jump = facts.instructions[branch.jump]
    if not row(jump.op).pops_condition:
        return Refusal("stack-shape", "the condition is itself the value of an `and` or `or`")
    if branch.join == EXIT and facts.handlers_over(branch.jump):
        return Refusal("return-in-try")
    taken = _region(facts, branch.jump, branch.taken, branch.taken_blocks, branch.join)
    other = _region(facts, branch.jump, branch.fallthrough, branch.fallthrough_blocks, branch.join)
    for region in (taken, other):
        if isinstance(region, Refusal):
            return region
    assert isinstance(taken, ArmRegion) and isinstance(other, ArmRegion)
    touches = touched(facts, facts.indices_of(taken.blocks | other.blocks))
    refusal = _unmovable(touches)
    if refusal is not None:
        return refusal
    outputs: frozenset[str] = frozenset()
    if branch.join != EXIT:
        later = facts.liveness.live_in[branch.join]
        outputs = touches.written & later
        if touches.deleted & later:
            return Refusal("deletes-local", ", ".join(sorted(touches.deleted & later)))
    inputs = _inputs(facts, branch.jump, (taken, other), touches, sorted(outputs))
    if isinstance(inputs, Refusal):
        return inputs
    then_arm, else_arm = (taken, other) if row(jump.op).jump == "if_true" else (other, taken)
    cells = tuple(sorted(touches.cells))
    return BranchLowering(branch.jump, then_arm, else_arm, inputs, tuple(sorted(outputs)), cells)


def _region(
    facts: Facts, jump: int, entry: int, blocks: frozenset[int], join: int
) -> ArmRegion | Refusal:
    depth = facts.depth_before(jump)
    assert depth is not None
    base = depth - 1
    if entry == join:
        blocks = frozenset()
    blocks = _with_own_handlers(facts, jump, blocks, join)
    if facts.graph.block_of[jump] in blocks:
        return Refusal("loop-exit")
    if join == EXIT and base and not _always_raising(facts, blocks):
        return Refusal("consumes-iterator")
    refusal = _leaves_elsewhere(facts, blocks, join) or _reaches_below(facts, blocks, base)
    if refusal is not None:
        return refusal
    extra = 0
    if join != EXIT:
        at_join = facts.depth_before(facts.graph.blocks[join].start)
        if at_join is None or at_join < base:
            return Refusal("stack-shape", "the arms take operands away")
        extra = at_join - base
    return ArmRegion(entry, blocks, join, base, extra)


def _with_own_handlers(
    facts: Facts, jump: int, blocks: frozenset[int], join: int
) -> frozenset[int]:
    """Add the handlers of try ranges that begin inside the arm."""
    graph = facts.graph
    outer = {facts.function.tries[position] for position in facts.handlers_over(jump)}
    stop = None if join == EXIT else join
    known = set(blocks)
    pending = list(blocks)
    while pending:
        block = pending.pop()
        handler = graph.handler_block(block)
        if handler is None or graph.handlers[block] in outer or handler in known:
            continue
        new = walk(handler, graph.successors, stop) - known
        known |= new
        pending.extend(new)
    return frozenset(known)


def _always_raising(facts: Facts, blocks: frozenset[int]) -> bool:
    return not any(_ends(facts, block) == "return" for block in blocks)


def _ends(facts: Facts, block: int) -> str | None:
    return row(facts.instructions[facts.graph.last(block)].op).ends


def _leaves_elsewhere(facts: Facts, blocks: frozenset[int], join: int) -> Refusal | None:
    if join != EXIT and not _always_raising(facts, blocks):
        return Refusal("return-in-try", "a handler of the arm returns")
    return None


def _reaches_below(facts: Facts, blocks: frozenset[int], base: int) -> Refusal | None:
    """Refuse an arm that takes, copies or moves an operand from before it."""
    for index in facts.indices_of(blocks):
        instruction = facts.instructions[index]
        depth = facts.depth_before(index)
        if depth is None:
            continue
        if depth - _operands_needed(instruction) < base:
            return Refusal("stack-shape", f"{instruction.op} reaches below the branch")
    return None


#: How far an instruction looks at operands that it does not take: from the top, before it runs,
#: and as much further as its argument says if it is counted there.
_LOOKS_AT: Final = {
    "LIST_APPEND": 1,
    "LIST_EXTEND": 1,
    "SET_ADD": 1,
    "SET_UPDATE": 1,
    "DICT_UPDATE": 1,
    "MAP_ADD": 2,
    "DICT_MERGE": 4,  # down to the callable, which it names in its error
    "RERAISE": 1,
}
_LOOKS_AT_FIXED: Final = {
    "FOR_ITER": 1,
    "SEND": 2,
    "GET_ANEXT": 1,
    "GET_LEN": 1,
    "IMPORT_FROM": 1,
    "MATCH_MAPPING": 1,
    "MATCH_SEQUENCE": 1,
    "MATCH_KEYS": 2,
    "CHECK_EXC_MATCH": 2,
    "WITH_EXCEPT_START": 4,
}


def _operands_needed(instruction: Instruction) -> int:
    """Return how many operands have to be there when an instruction runs."""
    known = row(instruction.op)
    needed = known.effect(instruction.arg)[0]
    if known.moves:
        return max(needed, int(instruction.arg))
    if instruction.op in _LOOKS_AT:
        return max(needed, int(instruction.arg) + _LOOKS_AT[instruction.op])
    return max(needed, _LOOKS_AT_FIXED.get(instruction.op, 0))


def _unmovable(touches: Touched) -> Refusal | None:
    if touches.introspects:
        return Refusal("frame-introspection", touches.introspects)
    return None


def _inputs(
    facts: Facts,
    jump: int,
    regions: Sequence[ArmRegion],
    touches: Touched,
    outputs: Sequence[str],
) -> tuple[str, ...] | Refusal:
    """Return the locals that the arms need from the frame."""
    names = touches.read | touches.written | touches.deleted | frozenset(outputs)
    graph, after = facts.graph, frozenset(outputs)
    required: frozenset[str] = frozenset()
    live: frozenset[str] = frozenset()
    for region in regions:
        # An arm that raises is not mended, so what only a handler around it reads is not required.
        # A branch inside the arm may pass it on nevertheless, so it is given where there is one.
        required |= live_into(graph, facts.liveness, region.entry, region.blocks, after)
        live |= after if region.entry < 0 else facts.liveness.live_in[region.entry]
    bound = bound_before(graph, facts.liveness, jump)
    # An arm that leaves nothing of a variable never bound begins without it, as the frame would.
    started = maybe_bound_before(graph, facts.liveness, jump) | after
    unbound = (names & required & started) - bound
    if unbound:
        return Refusal("maybe-unbound", ", ".join(sorted(unbound)))
    needed = sorted(names & (required | live) & bound)
    if touches.uses_super:
        first = facts.function.shape.argnames[:1]
        if not first or first[0] in facts.function.shape.cellvars:
            return Refusal("frame-introspection", "super() without arguments")
        needed = [*first, *(name for name in needed if name != first[0])]
    return tuple(needed)
