"""Propose to mend a conditional jump: as a branch between two arms, or as a guard.

An arm becomes a function of its own: its live-ins are its arguments, its live-outs its results. It
may not look at the frame, and may leave only at the join, or by returning where both arms do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from bcmend.analysis.code_effects import Touched, touched
from bcmend.analysis.facts import Facts
from bcmend.analysis.flags import flags_inside, live_by_flags
from bcmend.analysis.liveness import bound_before, live_into
from bcmend.analysis.stack import operands_needed
from bcmend.bytecode.opcodes import BLOCK_ENTRIES, HANDLERS, MERGES, NULLS, row
from bcmend.cfg.dominance import EXIT
from bcmend.cfg.graph import walk
from bcmend.cfg.regions import Branch
from bcmend.rewrite.passes.nulls import may_push_null
from bcmend.rewrite.sites.plan import BranchLowering, GuardLowering, HandlerRefusal, SiteRefusal


def propose_guard(facts: Facts, branch: Branch) -> GuardLowering | SiteRefusal:
    """Propose the deferral of the arm that always raises."""
    raising, blocks, continues_at = branch.taken, branch.taken_blocks, branch.fallthrough
    if not branch.taken_raises:
        raising, blocks, continues_at = continues_at, branch.fallthrough_blocks, raising
    depth = (facts.depth_before(branch.jump) or 0) - 1
    around = frozenset(facts.handlers_over(branch.jump))
    blocks = _with_own_handlers(facts, around, blocks, EXIT)
    handles_its_own = SiteRefusal("return-in-try", "the arm handles its own exception")
    if facts.graph.block_of[branch.jump] in blocks:
        return handles_its_own
    base = _lowest_operand(facts, blocks, depth)
    refusal = _cannot_be_given(facts, branch.jump, range(base, depth))
    if refusal is None and not _always_raising(facts, blocks):
        refusal = handles_its_own
    touches = touched(facts, facts.indices_of(blocks))
    if (refusal := refusal or _unmovable(touches)) is not None:
        return refusal
    inputs = _inputs(facts, branch.jump, ((raising, blocks),), touches, ())
    if isinstance(inputs, SiteRefusal):
        return inputs
    jumps_if = row(facts.instructions[branch.jump].op).jump == "if_true"
    return GuardLowering(
        branch.jump,
        raising,
        blocks,
        base,
        raises_if=jumps_if is branch.taken_raises,
        continues_at=continues_at,
        operands=depth - base,
        inputs=inputs,
        cells=tuple(sorted(touches.cells)),
    )


def propose_branch(
    facts: Facts, branch: Branch, *, is_split: bool = False
) -> BranchLowering | SiteRefusal:
    """Propose a region with two entries.

    The handlers around the jump stay outside where they are around all of both arms; else they
    become part of the arms, but for those around the join. A split has no jump: both its arms begin
    with the instruction that is split.
    """
    if branch.join != EXIT:
        proposed = _propose_within(facts, branch, _around_all(facts, branch), is_split=is_split)
        if not isinstance(proposed, HandlerRefusal):
            return proposed
    return propose_between(facts, branch, is_split=is_split)


def propose_between(
    facts: Facts, branch: Branch, *, is_split: bool = False
) -> BranchLowering | SiteRefusal:
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
) -> BranchLowering | SiteRefusal:
    """Propose a region with the ranges ``outer`` around it."""
    jump = facts.instructions[branch.jump]
    taken, other = (
        _with_own_handlers(facts, outer, blocks, branch.join)
        for blocks in (branch.taken_blocks, branch.fallthrough_blocks)
    )
    arms, blocks = ((branch.taken, taken), (branch.fallthrough, other)), taken | other
    operands = _operands(facts, branch, blocks, outer, is_split=is_split)
    if isinstance(operands, SiteRefusal):
        return operands
    if branch.join != EXIT and not _always_raising(facts, blocks):
        return HandlerRefusal("return-in-try", "a handler of the arm returns")
    touches = touched(facts, facts.indices_of(blocks))
    if (refusal := _unmovable(touches)) is not None:
        return refusal
    passed = _passed(facts, branch, arms, touches, None)
    if isinstance(passed, SiteRefusal) and (flags := flags_inside(facts, branch)):
        passed = _passed(facts, branch, arms, touches, flags)
    if isinstance(passed, SiteRefusal):
        return passed
    inputs, outputs = passed
    jumps_if = row(jump.op).jump == "if_true"
    entries = branch.taken, branch.fallthrough
    base, given, extra, nulls = operands
    return BranchLowering(
        branch.jump,
        *(entries if jumps_if else entries[::-1]),
        branch.join,
        blocks,
        base,
        given,
        extra,
        None if is_split or row(jump.op).pops_condition else jumps_if,
        inputs,
        outputs,
        tuple(sorted(touches.cells)),
        facts.argument_names[:1] if touches.uses_super else (),
        outer,
        nulls,
    )


_Arm = tuple[int, frozenset[int]]
_Names = frozenset[str]


def _passed(
    facts: Facts, branch: Branch, arms: Sequence[_Arm], touches: Touched, flags: _Names | None
) -> tuple[tuple[str, ...], tuple[str, ...]] | SiteRefusal:
    """Return the live-ins and live-outs of a region, on the paths that ``flags`` leave feasible."""
    outputs: tuple[str, ...] = ()
    if branch.join != EXIT:
        later = facts.liveness.live_in[branch.join]
        if flags is not None:
            everywhere = frozenset(range(len(facts.graph.blocks)))
            later = live_by_flags(facts, flags, branch.join, everywhere, frozenset())
        outputs = tuple(sorted(touches.written & later))
        # An inlined comprehension clears the variables that it shadows, and restores them.
        unbound = (touches.deleted & later) - facts.liveness.bound_in[branch.join]
        if unbound:
            return _unbound(unbound)
    inputs = _inputs(facts, branch.jump, arms, touches, outputs, flags)
    return inputs if isinstance(inputs, SiteRefusal) else (inputs, outputs)


def _operands(
    facts: Facts, branch: Branch, blocks: frozenset[int], outer: frozenset[int], *, is_split: bool
) -> tuple[int, int, int, frozenset[int]] | SiteRefusal:
    """Return how many operands lie under a region, are given to it and are left at its join.

    Also returns which of those given are NULLs, which is possible in a split.
    """
    stack = facts.stacks[branch.jump]
    assert stack is not None
    depth = len(stack) if is_split else len(stack) - 1
    base, at_join = 0, 0
    if branch.join != EXIT:
        at_join = facts.depth_before(facts.graph.blocks[branch.join].start) or 0
        base = _lowest_operand(facts, blocks, min(depth, at_join))
    given = range(base, depth)
    nulls = {each for each in given if is_split and _is_null(facts, stack[each])}
    refusal = _cannot_be_given(facts, branch.jump, (each for each in given if each not in nulls))
    if refusal is not None:
        return refusal
    tries = facts.function.tries
    if branch.join != EXIT:
        over_join = facts.handlers_over(facts.graph.blocks[branch.join].start)
        around = (*facts.innermost(outer), *over_join)  # of the call of the region
        if any(tries[each].depth > min(depth, at_join) for each in around):
            return SiteRefusal("stack-shape", "a handler around the branch wants more operands")
    if is_split and any(tries[each].depth > base for each in facts.handlers_over(branch.jump)):
        return SiteRefusal("stack-shape", "a handler around the split wants more operands")
    if any(position < at_join for position in nulls):
        return SiteRefusal("stack-shape", "a NULL outlasts the region")
    return base, len(given), max(at_join - base, 0), frozenset(each - base for each in nulls)


def _is_null(facts: Facts, makers: frozenset[int]) -> bool:
    return all(maker >= 0 and facts.instructions[maker].op in NULLS for maker in makers)


def _cannot_be_given(facts: Facts, jump: int, positions: Iterable[int]) -> SiteRefusal | None:
    """Return the refusal of an operand that is a NULL, or belongs to a ``with`` or a handler."""
    stack = facts.stacks[jump] or ()
    for maker in (each for position in positions for each in stack[position]):
        if maker < 0:
            return HandlerRefusal("return-in-try", "the region ends an exception handler")
        instruction = facts.instructions[maker]
        if instruction.op in _ENTERS_WITH:
            return HandlerRefusal("return-in-try")
        if may_push_null(instruction):
            return SiteRefusal(
                "stack-shape", f"the region would take over a part of {instruction.op}"
            )
    return None


_ENTERS_WITH: Final = BLOCK_ENTRIES | HANDLERS


def _with_own_handlers(
    facts: Facts, around: frozenset[int], blocks: frozenset[int], join: int
) -> frozenset[int]:
    """Return the blocks of an arm and of the handlers of try ranges not ``around`` it."""
    graph = facts.graph
    outer = {facts.function.tries[position] for position in around}
    stop = None if join == EXIT else join
    known, pending = blocks, list(blocks)
    while pending:
        block = pending.pop()
        handler = graph.handler_block(block)
        if handler is None or graph.handlers[block] in outer or handler in known:
            continue
        new = walk(handler, graph.successors, stop) - known
        known |= new
        pending.extend(new)
    return known


def _always_raising(facts: Facts, blocks: frozenset[int]) -> bool:
    last = (facts.instructions[facts.graph.last(block)] for block in blocks)
    return not any(row(each.op).ends == "return" for each in last)


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
_NAMED_IN_ERRORS: Final = dict.fromkeys(MERGES, 3)


def _unmovable(touches: Touched) -> SiteRefusal | None:
    if touches.introspects:
        return SiteRefusal("frame-introspection", touches.introspects)
    if touches.suspends:
        return SiteRefusal("generator")
    return None


def _inputs(
    facts: Facts,
    jump: int,
    arms: Sequence[_Arm],
    touches: Touched,
    outputs: Sequence[str],
    flags: _Names | None = None,
) -> tuple[str, ...] | SiteRefusal:
    """Return the locals that the arms need from the frame."""
    names = touches.read | touches.written | touches.deleted | frozenset(outputs)
    graph, after = facts.graph, frozenset(outputs)
    required: frozenset[str] = frozenset()
    live: frozenset[str] = frozenset()
    for entry, blocks in arms:
        # An arm that raises is not mended, so what only a handler around it reads is not required.
        # A branch inside the arm may still pass it on, so it is given where it is bound.
        required |= (
            live_into(graph, facts.liveness, entry, blocks, after)
            if flags is None
            else live_by_flags(facts, flags, entry, blocks, after)
        )
        live |= facts.liveness.live_in[entry]
    bound = bound_before(graph, facts.liveness, jump)
    # An arm that leaves nothing of a variable never bound begins without it, as the frame would.
    started = bound_before(graph, facts.liveness, jump, any) | after
    unbound = (names & required & started) - bound
    if unbound:
        return _unbound(unbound)
    shape = facts.function.shape
    if touches.uses_super and not set(shape.argnames[:1]).difference(shape.cellvars):
        return SiteRefusal("frame-introspection", "super() without arguments")
    return tuple(sorted(names & (required | live) & bound))


def _unbound(names: frozenset[str]) -> SiteRefusal:
    """Return the refusal of a region for locals without a value, which marks on them would lift."""
    return SiteRefusal("stack-shape", f"without a value: {', '.join(sorted(names))}", names)
