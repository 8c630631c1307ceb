"""Merge ends of a function that CPython has duplicated.

Behind a ternary in ``return f(x if p else y)``, CPython 3.12 and later copy the call and the return
into both arms. Each arm then takes the operands that lie under it, and the NULL of a call among
them, which no variable can hold. Where the copies are merged, the arms meet before the call:

    push f, NULL                             push f, NULL
    if p: push x; call; return               push x if p else y
    push y; call; return                     call; return

The end of a handler is copied likewise, and both arms leave it. Where the copies are merged, the
arms meet in the handler.

Copies have the same place in the source. Other ends stay: an arm can have them.
"""

from __future__ import annotations

from collections.abc import Iterator

from bcmend.analysis.facts import Facts, facts_of
from bcmend.bytecode import emit
from bcmend.bytecode.instructions import Instruction
from bcmend.bytecode.opcodes import HANDLER_ENDS, row
from bcmend.rewrite.passes.nulls import may_push_null
from bcmend.rewrite.passes.rearrange import with_others, without_unreachable


def with_shared_tails(facts: Facts) -> Facts:
    """Return facts about the function with duplicated ends merged."""
    jumps = dict(_jumps(facts))
    return facts_of(without_unreachable(with_others(facts.function, jumps))) if jumps else facts


def _jumps(facts: Facts) -> Iterator[tuple[int, Instruction]]:
    """Yield where a copy begins, and the jump to the beginning of its last copy."""
    ends = [
        index
        for index, each in enumerate(facts.instructions)
        if row(each.op).ends and facts.stacks[index] is not None
    ]
    for position, end in enumerate(ends):
        for last in reversed(ends[position + 1 :]):
            length = _length_of_copy(facts, end, last)
            start, of_last = end + 1 - length, last + 1 - length
            if length and _are_worth_it(facts, range(start, end + 1), of_last):
                (jump,) = emit.jump(of_last)
                yield start, jump
                break


def _length_of_copy(facts: Facts, end: int, last: int) -> int:
    """Return how many instructions up to two ends are the same."""
    length = 0
    while length < min(end + 1, last - end) and _are_copies(facts, end - length, last - length):
        length += 1
    return length


def _are_copies(facts: Facts, one: int, other: int) -> bool:
    first, second = facts.instructions[one], facts.instructions[other]
    if first.op in HANDLER_ENDS:  # which has the place of what stands before it
        second = second._replace(location=first.location)
    return (
        first.location is not None
        and first.location.lineno is not None
        and first.target is None
        and first._replace(offset=-1) == second._replace(offset=-1)
        and type(first.arg) is type(second.arg)
        and facts.stacks[one] is not None
        and facts.depth_before(one) == facts.depth_before(other)
        and facts.handlers_over(one) == facts.handlers_over(other)
    )


def _are_worth_it(facts: Facts, copy: range, of_last: int) -> bool:
    """Return whether no arm can have its copy of an end."""
    takes_nulls = _takes_a_null(facts, copy.start) and _takes_a_null(facts, of_last)
    return takes_nulls or any(facts.instructions[index].op in HANDLER_ENDS for index in copy)


def _takes_a_null(facts: Facts, start: int) -> bool:
    """Return whether a NULL may lie among the operands before an instruction."""
    makers = frozenset[int]().union(*(facts.stacks[start] or ()))
    loads = (facts.instructions[maker] for maker in makers if maker >= 0)
    return any(map(may_push_null, loads))
