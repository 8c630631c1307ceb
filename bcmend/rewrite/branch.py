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
from bcmend.analysis.flags import flags_inside, live_by_flags
from bcmend.analysis.liveness import bound_before, live_into, maybe_bound_before
from bcmend.analysis.stack import operands_needed
from bcmend.cfg.dominance import EXIT
from bcmend.cfg.graph import walk
from bcmend.cfg.regions import Branch
from bcmend.codeobj.nulls import may_push_null
from bcmend.codeobj.opcodes import row
from bcmend.rewrite.plan import ArmRegion, BranchLowering, GuardLowering, Refusal

__all__ = ["propose_between", "propose_branch", "propose_guard"]


def propose_guard(facts: Facts, branch: Branch) -> GuardLowering | Refusal:
    """Propose the deferral of the arm that always raises."""
    raising = branch.taken if branch.taken_raises else branch.fallthrough
    blocks = branch.taken_blocks if branch.taken_raises else branch.fallthrough_blocks
    goes_on = branch.fallthrough if branch.taken_raises else branch.taken
    region = _raising_region(facts, branch.jump, raising, blocks)
    if isinstance(region, Refusal):
        return region
    depth = facts.depth_before(branch.jump)
    assert depth is not None
    if not _always_raising(facts, region.blocks):
        return Refusal("return-in-try", "the arm handles its own exception")
    touches = touched(facts, facts.indices_of(region.blocks))
    refusal = _unmovable(touches)
    if refusal is not None:
        return refusal
    way = (raising, region.blocks)
    inputs = _inputs(facts, branch.jump, (way,), touches, ())
    if isinstance(inputs, Refusal):
        return inputs
    jumps_if = row(facts.instructions[branch.jump].op).jump == "if_true"
    raises_if = jumps_if if branch.taken_raises else not jumps_if
    cells = tuple(sorted(touches.cells))
    operands = depth - 1 - region.base
    return GuardLowering(branch.jump, region, raises_if, goes_on, operands, inputs, cells)


def propose_branch(
    facts: Facts, branch: Branch, *, is_split: bool = False
) -> BranchLowering | Refusal:
    """Propose a region with two entries.

    The handlers around the jump stay outside where they are around all of both arms; else they
    become part of the arms, but for those around the join. A split has no jump: both its arms begin
    with the instruction that it stands in front of.
    """
    if branch.join == EXIT:
        return propose_between(facts, branch, is_split=is_split)
    outer = _around_all(facts, branch)
    proposed = _propose_within(facts, branch, outer, is_split=is_split)
    if isinstance(proposed, Refusal) and proposed.slug == "return-in-try":
        return propose_between(facts, branch, is_split=is_split)
    return proposed


def propose_between(
    facts: Facts, branch: Branch, *, is_split: bool = False
) -> BranchLowering | Refusal:
    """Propose a region with all handlers between the jump and the join as parts of it."""
    outer: frozenset[int] = frozenset()
    if branch.join != EXIT:
        join = facts.graph.blocks[branch.join].start
        outer = _around_all(facts, branch) & facts.all_handlers_over(join)
    return _propose_within(facts, branch, outer, is_split=is_split)


def _around_all(facts: Facts, branch: Branch) -> frozenset[int]:
    """Return the positions of the handlers that a jump and all of its arms lie within."""
    around = facts.all_handlers_over(branch.jump)
    for index in facts.indices_of(branch.taken_blocks | branch.fallthrough_blocks):
        if around and row(facts.instructions[index].op).may_raise:
            around &= facts.all_handlers_over(index)
    return around


def _propose_within(
    facts: Facts, branch: Branch, outer: frozenset[int], *, is_split: bool
) -> BranchLowering | Refusal:
    """Propose a region with the ranges ``outer`` around it."""
    jump = facts.instructions[branch.jump]
    ways = tuple(
        (entry, _with_own_handlers(facts, outer, blocks, branch.join))
        for entry, blocks in (
            (branch.taken, branch.taken_blocks),
            (branch.fallthrough, branch.fallthrough_blocks),
        )
    )
    blocks = ways[0][1] | ways[1][1]
    operands = _operands(facts, branch, blocks, outer, is_split=is_split)
    if isinstance(operands, Refusal):
        return operands
    touches = touched(facts, facts.indices_of(blocks))
    refusal = _leaves_elsewhere(facts, blocks, branch.join) or _unmovable(touches)
    if refusal is not None:
        return refusal
    passed = _passed(facts, branch, ways, touches, None)
    if isinstance(passed, Refusal) and (flags := flags_inside(facts, branch)):
        passed = _passed(facts, branch, ways, touches, flags)
    if isinstance(passed, Refusal):
        return passed
    inputs, outputs = passed
    jumps_if = row(jump.op).jump == "if_true"
    then_way, else_way = ways if jumps_if else ways[::-1]
    base, given, extra, nulls = operands
    return BranchLowering(
        branch.jump,
        then_way[0],
        else_way[0],
        branch.join,
        blocks,
        base,
        given,
        extra,
        None if is_split or row(jump.op).pops_condition else jumps_if,
        inputs,
        outputs,
        tuple(sorted(touches.cells)),
        _first_argument(facts) if touches.uses_super else (),
        outer,
        nulls,
    )


Way = tuple[int, frozenset[int]]


def _passed(
    facts: Facts,
    branch: Branch,
    ways: Sequence[Way],
    touches: Touched,
    flags: frozenset[str] | None,
) -> tuple[tuple[str, ...], tuple[str, ...]] | Refusal:
    """Return the locals that go into a region and that come out of it.

    With ``flags``, only the ways that these leave open are counted.
    """
    outputs: tuple[str, ...] = ()
    if branch.join != EXIT:
        later = facts.liveness.live_in[branch.join]
        if flags is not None:
            everywhere = frozenset(range(len(facts.graph.blocks)))
            later = live_by_flags(facts, flags, branch.join, everywhere, frozenset())
        outputs = tuple(sorted(touches.written & later))
        if touches.deleted & later:
            return _unbound(touches.deleted & later)
    inputs = _inputs(facts, branch.jump, ways, touches, outputs, flags)
    return inputs if isinstance(inputs, Refusal) else (inputs, outputs)


def _first_argument(facts: Facts) -> tuple[str, ...]:
    return facts.function.shape.argnames[:1]


def _raising_region(
    facts: Facts, jump: int, entry: int, blocks: frozenset[int]
) -> ArmRegion | Refusal:
    depth = facts.depth_before(jump)
    assert depth is not None
    blocks = _with_own_handlers(facts, frozenset(facts.handlers_over(jump)), blocks, EXIT)
    if facts.graph.block_of[jump] in blocks:
        return Refusal("return-in-try", "the arm handles its own exception")
    base = _lowest_operand(facts, blocks, depth - 1)
    for position in range(base, depth - 1):
        refusal = _cannot_be_given(facts, jump, position)
        if refusal is not None:
            return refusal
    return ArmRegion(entry, blocks, base)


def _operands(
    facts: Facts,
    branch: Branch,
    blocks: frozenset[int],
    outer: frozenset[int],
    *,
    is_split: bool,
) -> tuple[int, int, int, frozenset[int]] | Refusal:
    """Return the operands of a region.

    How many lie under it, how many are given to it, how many are left at its join, and which of
    those given are NULLs; those of a split may be.
    """
    stack = facts.stacks[branch.jump]
    assert stack is not None
    depth = len(stack) if is_split else len(stack) - 1
    base, at_join = 0, 0
    if branch.join != EXIT:
        found = facts.depth_before(facts.graph.blocks[branch.join].start)
        assert found is not None
        at_join = found
        base = _lowest_operand(facts, blocks, min(depth, at_join))
    nulls = set()
    for position in range(base, depth):
        if is_split and _is_null(facts, stack[position]):
            nulls.add(position - base)
            continue
        refusal = _cannot_be_given(facts, branch.jump, position)
        if refusal is not None:
            return refusal
    if branch.join != EXIT and _deepest(facts, branch, outer) > min(depth, at_join):
        return Refusal("stack-shape", "a handler around the branch wants more operands")
    around = (facts.function.tries[position] for position in facts.handlers_over(branch.jump))
    if is_split and any(handler.depth > base for handler in around):
        return Refusal("stack-shape", "a handler around the split wants more operands")
    if any(position + base < at_join for position in nulls):
        return Refusal("stack-shape", "a NULL outlasts the region")
    return base, depth - base, max(at_join - base, 0), frozenset(nulls)


def _is_null(facts: Facts, makers: frozenset[int]) -> bool:
    return all(maker >= 0 and facts.instructions[maker].op == "PUSH_NULL" for maker in makers)


def _deepest(facts: Facts, branch: Branch, outer: frozenset[int]) -> int:
    """Return how many operands the handlers around the call of a region count on."""
    at_join = facts.handlers_over(facts.graph.blocks[branch.join].start)
    around = [*facts.innermost(outer), *at_join]
    return max((facts.function.tries[each].depth for each in around), default=0)


def _cannot_be_given(facts: Facts, jump: int, position: int) -> Refusal | None:
    """Refuse an operand that is no value of its own: a NULL, or a part of a ``with`` or handler."""
    stack = facts.stacks[jump]
    assert stack is not None
    for maker in stack[position]:
        if maker < 0:
            return Refusal("return-in-try", "the region ends an exception handler")
        instruction = facts.instructions[maker]
        if instruction.op in _ENTERS_WITH:
            return Refusal("return-in-try")
        if may_push_null(instruction):
            return Refusal("stack-shape", f"the region would take over a part of {instruction.op}")
    return None


_ENTERS_WITH: Final = frozenset(["BEFORE_WITH", "BEFORE_ASYNC_WITH", "PUSH_EXC_INFO"])


def _with_own_handlers(
    facts: Facts, around: frozenset[int], blocks: frozenset[int], join: int
) -> frozenset[int]:
    """Add the handlers of try ranges other than those ``around`` the arm."""
    graph = facts.graph
    outer = {facts.function.tries[position] for position in around}
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


def _lowest_operand(facts: Facts, blocks: frozenset[int], depth: int) -> int:
    """Return how many operands no instruction of ``blocks`` takes, copies or moves."""
    for index in facts.indices_of(blocks):
        here = facts.depth_before(index)
        if here is not None:
            instruction = facts.instructions[index]
            seen = operands_needed(instruction) + _NAMED_IN_ERRORS.get(instruction.op, 0)
            depth = min(depth, max(here - seen, 0))
    return depth


#: How far below the operands that it needs an instruction looks for the name of what is called.
_NAMED_IN_ERRORS: Final = {"DICT_MERGE": 3}


def _unmovable(touches: Touched) -> Refusal | None:
    if touches.introspects:
        return Refusal("frame-introspection", touches.introspects)
    if touches.suspends:
        return Refusal("generator")
    return None


def _inputs(
    facts: Facts,
    jump: int,
    ways: Sequence[Way],
    touches: Touched,
    outputs: Sequence[str],
    flags: frozenset[str] | None = None,
) -> tuple[str, ...] | Refusal:
    """Return the locals that the arms need from the frame."""
    names = touches.read | touches.written | touches.deleted | frozenset(outputs)
    graph, after = facts.graph, frozenset(outputs)
    required: frozenset[str] = frozenset()
    live: frozenset[str] = frozenset()
    for entry, blocks in ways:
        # An arm that raises is not mended, so what only a handler around it reads is not required.
        # A branch inside the arm may pass it on nevertheless, so it is given where there is one.
        if flags is None:
            required |= live_into(graph, facts.liveness, entry, blocks, after)
        else:
            required |= live_by_flags(facts, flags, entry, blocks, after)
        live |= facts.liveness.live_in[entry]
    bound = bound_before(graph, facts.liveness, jump)
    # An arm that leaves nothing of a variable never bound begins without it, as the frame would.
    started = maybe_bound_before(graph, facts.liveness, jump) | after
    unbound = (names & required & started) - bound
    if unbound:
        return _unbound(unbound)
    needed = names & (required | live) & bound
    if touches.uses_super and not _has_plain_first_argument(facts):
        return Refusal("frame-introspection", "super() without arguments")
    return tuple(sorted(needed))


def _unbound(names: frozenset[str]) -> Refusal:
    """Refuse a region for locals without a value; it stays so for those without a mark alone."""
    return Refusal("stack-shape", f"without a value: {', '.join(sorted(names))}", names)


def _has_plain_first_argument(facts: Facts) -> bool:
    first = _first_argument(facts)
    return bool(first) and first[0] not in facts.function.shape.cellvars
