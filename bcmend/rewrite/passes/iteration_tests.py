"""Let a loop leave out iterations: begin its body with ``if not runs_iteration(): continue``.

A loop whose iterations are data-dependent is traced with all that there may be. The test is a
branch like any other; in plain Python it is always true. The inserted instructions have the offset
of the loop, by which the jump is known as a site.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from bcmend.analysis.facts import Facts, facts_of
from bcmend.bytecode import emit
from bcmend.bytecode.assemble import Item
from bcmend.bytecode.instructions import Instruction, Label
from bcmend.bytecode.opcodes import LOOPS
from bcmend.names import NAMESPACE, RUNS_ITERATION
from bcmend.rewrite.passes.rearrange import rewritten


def with_iteration_tests(facts: Facts, offsets: Collection[int]) -> Facts:
    """Return facts about the function in which the loops at ``offsets`` test each iteration."""

    def replacement(index: int, instruction: Instruction) -> Iterator[Item]:
        yield instruction
        if instruction.op in LOOPS and instruction.offset in offsets:
            yield from _test(index, instruction)

    return facts_of(rewritten(facts.function, replacement)) if offsets else facts


def _test(index: int, loop: Instruction) -> Iterator[Item]:
    runs = Label("iteration runs")
    test = (
        *emit.call_global((NAMESPACE, RUNS_ITERATION), [], loop.location),
        *emit.jump_if_true(runs, loop.location),
        *emit.pop_top(loop.location),
        *emit.jump(index, loop.location),
    )
    for instruction in test:
        yield instruction._replace(offset=loop.offset)
    yield runs
