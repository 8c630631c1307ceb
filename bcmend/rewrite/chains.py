"""Join the conditions of ``if a and b``, so that one branch is left of the chain.

In bytecode every condition of a chain has a jump of its own, and each of these would be a branch
inside the arm of the one before, with all that follows in both of its arms. Here the chain becomes
what ``c = a and b`` is: the jump of ``a`` goes to that of ``b`` and leaves the value there. Only
``b`` is conditional then. In plain Python the code does the same, but that it asks the value that
decides for its truth a second time.

Reads facts; returns the function with other instructions. Only jumps are joined that stand behind
each other: the second has no way to it but from the first, in the same try ranges, and no variable
is bound in between, since after the chain it would be bound now and then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from bcmend.analysis.effects import touched
from bcmend.analysis.facts import Facts
from bcmend.cfg.graph import decoded_index
from bcmend.codeobj import emit
from bcmend.codeobj.decode import FunctionCode, Instruction, TryRange
from bcmend.codeobj.opcodes import row

__all__ = ["with_chains_joined"]


def with_chains_joined(facts: Facts, jumps: Collection[int]) -> FunctionCode | None:
    """Join the chains among ``jumps``; ``None`` if there are none."""
    pairs = ((jump, _next_of(facts, jump)) for jump in jumps)
    following = {jump: after for jump, after in pairs if after is not None and after in jumps}
    return _rewritten(facts, following) if following else None


def _next_of(facts: Facts, jump: int) -> int | None:
    """Return the jump at which the value of ``jump`` can be tested as well."""
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
    goes_on = second.target if one.jump == other.jump else after + 1
    return after if decoded_index(first.target) == goes_on else None


def _rewritten(facts: Facts, following: Mapping[int, int]) -> FunctionCode:
    function = facts.function
    members = {*following, *following.values()}
    starts = {_test_of(facts, jump): jump for jump in members}
    written: list[Instruction] = []
    places: list[int] = []
    for index, instruction in enumerate(facts.instructions):
        places.append(len(written))
        if index in starts:
            written.extend(_before_the_test(facts, starts[index], following))
        if index + 1 in starts:
            instruction = emit.without_cast(instruction)
        written.append(instruction)
        if index in following:
            target = _test_of(facts, following[index])
            written[-1] = replace(instruction, target=target)
            written.extend(_like(each, instruction) for each in emit.pop_top())
    places.append(len(written))
    instructions = tuple(
        replace(each, target=places[each.target]) if isinstance(each.target, int) else each
        for each in written
    )
    tries = tuple(_moved(entry, places) for entry in function.tries)
    return replace(function, instructions=instructions, tries=tries)


def _test_of(facts: Facts, jump: int) -> int:
    """Return where the test begins that ``jump`` makes: at its cast to a bool, if there is one."""
    return jump - 1 if facts.instructions[jump - 1].op == "TO_BOOL" else jump


def _before_the_test(facts: Facts, jump: int, following: Mapping[int, int]) -> list[Instruction]:
    """Return what comes first: a copy of a value that stays, and a cast that was not needed."""
    added = list(emit.copy(1)) if jump in following else []
    if _test_of(facts, jump) == jump:
        added += emit.as_condition()
    return [_like(each, facts.instructions[jump]) for each in added]


def _like(added: Instruction, instruction: Instruction) -> Instruction:
    return replace(added, offset=instruction.offset, location=instruction.location)


def _moved(entry: TryRange, places: list[int]) -> TryRange:
    start, end, handler = (
        places[decoded_index(each)] for each in (entry.start, entry.end, entry.handler)
    )
    return replace(entry, start=start, end=end, handler=handler)
