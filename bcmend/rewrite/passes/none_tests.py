"""Take jumps on ``None`` apart, where a value may be ``None`` or not, as the data decide.

``if x is None`` is one instruction to CPython. As a comparison and a jump on its truth it is a
branch like any other. The new instructions have the offset of the old one, by which the jump is
known as a site.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from bcmend.analysis.facts import Facts, facts_of
from bcmend.bytecode import emit
from bcmend.bytecode.assemble import Item
from bcmend.bytecode.instructions import Instruction
from bcmend.bytecode.opcodes import NONE_JUMPS
from bcmend.rewrite.passes.rearrange import rewritten

_IS: Final = 0


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
    compare = Instruction("IS_OP", _IS, location=place)
    is_none = jump.op == "POP_JUMP_IF_NONE"
    test = emit.jump_if_true(target, place) if is_none else emit.jump_if_false(target, place)
    for each in (*emit.load_const(None, place), compare, *test):
        yield each._replace(offset=jump.offset)
