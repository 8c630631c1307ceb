"""Let a loop leave turns out.

A loop over what the data choose is traced as one over all that there may be, in which some turns
are not made. So the body begins with a question:

    for item in items:                      for item in items:
        body                                    if not turn_is_made():
                                                    continue
                                                body

The question is a branch like any other. In plain Python the answer is always yes. Reads a function
and its loops; produces the function with the questions. The inserted instructions have the offset
of the FOR_ITER, by which the jump is known as a site.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from bcmend.analysis.facts import Facts, facts_of
from bcmend.codeobj import emit
from bcmend.codeobj.assemble import Item
from bcmend.codeobj.decode import Instruction, Label
from bcmend.names import NAMESPACE, TURN_IS_MADE
from bcmend.rewrite.rearrange import put_together

__all__ = ["with_turns_left_out"]


def with_turns_left_out(facts: Facts, offsets: Collection[int]) -> Facts:
    """Return facts about the function in which the loops at ``offsets`` may leave turns out."""
    if not offsets:
        return facts
    written: list[Item] = []
    places: list[int] = []
    for index, instruction in enumerate(facts.instructions):
        places.append(len(written))
        if instruction.op == "FOR_ITER" and instruction.offset in offsets:
            written.extend(_with_question(index, instruction))
        else:
            written.append(instruction)
    return facts_of(put_together(facts.function, written, places))


def _with_question(index: int, loop: Instruction) -> Iterator[Item]:
    made = Label("turn is made")
    question = (
        *emit.call_global((NAMESPACE, TURN_IS_MADE), [], loop.location),
        *emit.jump_if_true(made, loop.location),
        *emit.pop_top(loop.location),
    )
    yield loop
    for instruction in question:
        yield replace(instruction, offset=loop.offset)
    yield Instruction("JUMP", None, index, loop.offset, loop.location)
    yield made
