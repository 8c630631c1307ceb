"""Write guards: branches of which one arm always raises.

The raising arm becomes a function that is called when the records are delivered; control continues
at the other arm. It is never traced, so no site in it is mended.
"""

from __future__ import annotations

from types import CodeType

from bcmend.bytecode import emit
from bcmend.bytecode.instructions import Label
from bcmend.names import CONDITION
from bcmend.rewrite.sites.plan import GuardLowering, Site
from bcmend.rewrite.writer.primitive_calls import ask, write_condition_test, write_original_test
from bcmend.rewrite.writer.region_values import copy_operands, operand_names, tuple_of
from bcmend.rewrite.writer.stretch import BlockWriter, Stretch


def write_guard(writer: BlockWriter, stretch: Stretch, site: Site, lowering: GuardLowering) -> None:
    """Write: where the condition is data-dependent, record a check and continue behind it."""
    original = Label("original")
    operands = operand_names(lowering)
    arm = emit.make_function(_raising_arm(writer, lowering, operands), lowering.cells)
    write_condition_test(stretch, site, original)
    stretch.add(copy_operands(operands))
    test = (emit.load_local(CONDITION), emit.load_const(lowering.raises_if))
    inputs = tuple_of([*lowering.inputs, *operands])
    stretch.add(ask(site, "guard", *test, arm, inputs))
    stretch.add(emit.jump_if_false(original))
    stretch.add(emit.jump(stretch.label(lowering.continues_at)))
    write_original_test(stretch, original)


def _raising_arm(writer: BlockWriter, lowering: GuardLowering, operands: list[str]) -> CodeType:
    """Return the raising arm as a function of its live-ins and operands."""
    outer = frozenset(writer.facts.handlers_over(lowering.jump))
    whole = writer.facts.function.shape
    shape = whole.of_part((*lowering.inputs, *operands), lowering.cells)
    stretch = Stretch(lowering.base, outer, is_plain=True)
    stretch.add(emit.prologue(shape))
    for name in reversed(operands):
        stretch.add(emit.load_local(name))
    writer.write_blocks(stretch, lowering.blocks, lowering.entry)
    return writer.finish(stretch, shape)
