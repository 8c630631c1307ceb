"""Take jumps on ``None`` apart, where a value may be ``None`` or not, as the data decide.

``if x is None`` is one instruction to CPython. As a comparison and a jump on its truth it is a
branch like any other. The new instructions have the offset of the old one, by which the jump is
known as a site.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from bcmend.analysis.facts import Facts, facts_of
from bcmend.bytecode import emit
from bcmend.bytecode.assemble import Item
from bcmend.bytecode.instructions import Instruction
from bcmend.bytecode.opcodes import NONE_JUMPS, row
from bcmend.rewrite.passes.rearrange import rewritten


def with_none_tests(facts: Facts, offsets: Collection[int]) -> Facts:
    """Return facts about the function in which the jumps on ``None`` at ``offsets`` are tests."""

    def replacement(index: int, instruction: Instruction) -> Iterator[Item]:
        if instruction.op in NONE_JUMPS and instruction.offset in offsets:
            yield from _test(instruction)
        else:
            yield instruction

    return facts_of(rewritten(facts.function, replacement)) if offsets else facts


def _test(jump: Instruction) -> Iterator[Instruction]:
    place, target = jump.location, jump.target
    assert target is not None
    jump_if = emit.jump_if_true if row(jump.op).jump == "if_none" else emit.jump_if_false
    for each in (*emit.is_none(place), *jump_if(target, place)):
        yield each._replace(offset=jump.offset)
