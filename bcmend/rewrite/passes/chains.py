"""Join the conditions of ``if a and b``, so that one branch is left of the chain.

In bytecode every condition of a chain has a jump of its own, and each of these would be a branch
inside the arm of the one before. Here the chain becomes what ``c = a and b`` is: the jump of ``a``
goes to that of ``b`` and leaves the value there, which is then tested a second time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from bcmend.analysis.code_effects import touched
from bcmend.analysis.facts import Facts, facts_of
from bcmend.bytecode import emit
from bcmend.bytecode.instructions import Instruction, decoded_index
from bcmend.bytecode.opcodes import TRUTHS, row
from bcmend.rewrite.passes.rearrange import rewritten


def with_chains_joined(facts: Facts, jumps: Collection[int]) -> Facts:
    """Return facts about the function with the chains among ``jumps`` joined."""
    pairs = ((jump, _next_of(facts, jump)) for jump in jumps)
    following = {jump: after for jump, after in pairs if after is not None and after in jumps}
    if not following:
        return facts
    starts = {_test_of(facts, jump): jump for jump in {*following, *following.values()}}

    def replacement(index: int, instruction: Instruction) -> Iterator[Instruction]:
        if index in starts:
            jump = starts[index]
            copied = emit.copy(1) if jump in following else ()
            cast = emit.as_condition() if index == jump else ()
            yield from (_at(facts.instructions[jump], each) for each in (*copied, *cast))
        if index + 1 in starts:
            instruction = emit.without_cast(instruction)
        if index in following:
            instruction = instruction._replace(target=_test_of(facts, following[index]))
        yield instruction
        if index in following:
            yield from (_at(instruction, each) for each in emit.pop_top())

    return facts_of(rewritten(facts.function, replacement))


def _next_of(facts: Facts, jump: int) -> int | None:
    """Return the jump at which the value of ``jump`` can be tested as well.

    It can be reached only from ``jump``, has the same try ranges, and no variable is bound between
    the two: after the chain it might be unbound.
    """
    graph, first = facts.graph, facts.instructions[jump]
    if jump + 1 == len(facts.instructions):
        return None
    block = graph.block_of[jump + 1]
    after = graph.last(block)
    second = facts.instructions[after]
    one, other = row(first.op), row(second.op)
    if not (one.tests_truth and one.pops_condition and other.tests_truth and other.pops_condition):
        return None
    if graph.predecessors[block] != (graph.block_of[jump],):
        return None
    if facts.handlers_over(jump) != facts.handlers_over(after):
        return None
    between = touched(facts, range(jump + 1, after))
    if between.written or between.deleted or between.cells_written or between.suspends:
        return None
    continues_at = second.target if one.jump == other.jump else after + 1
    return after if decoded_index(first.target) == continues_at else None


def _test_of(facts: Facts, jump: int) -> int:
    """Return where the test begins that ``jump`` makes: at its cast to a bool, if there is one."""
    return jump - 1 if facts.instructions[jump - 1].op in TRUTHS else jump


def _at(place: Instruction, added: Instruction) -> Instruction:
    return added._replace(offset=place.offset, location=place.location)
