"""Write the new code of a function: copy its blocks, and mend its sites.

A body is the whole function with every planned site mended; a region, a raising arm or a deferred
statement is a stretch of it that becomes a function of its own. Behind each mended site follow the
original instructions, for the calls in which there is nothing to mend.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from types import CodeType

from bcmend.analysis.facts import Facts
from bcmend.bytecode import emit
from bcmend.bytecode.assemble import Item, assemble
from bcmend.bytecode.instructions import Instruction, Label, Shape
from bcmend.bytecode.opcodes import CONSTANT_RETURNS, STARTS, TRUTHS, row
from bcmend.names import BUFFER, NUMBERS
from bcmend.rewrite.sites.plan import (
    BranchLowering,
    GuardLowering,
    OutputLowering,
    Plan,
    Site,
    TruthLowering,
)
from bcmend.rewrite.writer.branch_writer import BranchWriter
from bcmend.rewrite.writer.guard_writer import write_guard
from bcmend.rewrite.writer.instruction_copies import Copier
from bcmend.rewrite.writer.primitive_calls import write_truth
from bcmend.rewrite.writer.region_table import RegionTable
from bcmend.rewrite.writer.statement_writer import StatementWriter
from bcmend.rewrite.writer.stretch import Stretch
from bcmend.rewrite.writer.tries import with_tries


class CodeWriter:
    """Writes the code objects of one function, with those among its constants replaced."""

    def __init__(self, facts: Facts, plan: Plan, nested: Mapping[CodeType, CodeType]) -> None:
        self.facts = facts
        self._sites = plan.lowerings
        self._splits = plan.splits
        self._copier = Copier(facts, nested)
        self._branches = BranchWriter(self, RegionTable(facts, plan))
        self._statements = StatementWriter(self, self._copier)
        self._unchanged = self._find_unchanged()
        self.written: list[CodeType] = []  # so far

    # Whole functions

    def body(self, *, with_buffer: bool) -> CodeType:
        """Return the code of the function with its sites mended.

        With a buffer, every argument is passed by position, ``*args`` and ``**kwargs`` as the tuple
        and the dictionary that they are. The last two are the buffer of the call and the numbers
        that were computed in front of it.
        """
        stretch = Stretch(has_buffer=with_buffer)
        self.write_blocks(stretch, self.facts.graph.reachable, None)
        shape = self.facts.function.shape
        return self.finish(stretch, shape.flattened(BUFFER, NUMBERS) if with_buffer else shape)

    def both_forms(self, gate: Callable[[Label], Sequence[Item]]) -> CodeType:
        """Return the code of a generator: its own instructions and, behind them, its mended form.

        The frame that is suspended is the one that was entered, so that it cannot call a body.
        ``gate`` is run before the first statement, and jumps to the label that it is given where
        the mended form is to run.
        """
        facts, mended = self.facts, Label("mended")
        start = 1 + next(i for i, each in enumerate(facts.instructions) if each.op in STARTS)
        plain = Stretch()
        self._write_originals(plain, start, gate(mended))
        stretch = Stretch(starts_at=start)
        stretch.add([mended])
        self.write_blocks(stretch, facts.graph.reachable, None)
        return self._assembled([plain, stretch], facts.function.shape)

    def _write_originals(self, stretch: Stretch, start: int, gate: Sequence[Item]) -> None:
        """Write the function as it is, with ``gate`` before instruction ``start``."""
        for block in self.facts.graph.blocks:
            stretch.add([stretch.label(block.index)])
            for index in range(block.start, block.end):
                first = len(stretch.items)
                if index == start:
                    stretch.add(gate)
                instruction = self.facts.instructions[index]
                if instruction.target is not None:
                    instruction = self._copier.copied(stretch, index)
                stretch.add([instruction])
                stretch.marks.append((first, len(stretch.items), index))

    def finish(self, stretch: Stretch, shape: Shape) -> CodeType:
        """Return the code object of a stretch that is complete."""
        return self._assembled([stretch], shape)

    def _assembled(self, stretches: Sequence[Stretch], shape: Shape) -> CodeType:
        items, tries = zip(*(with_tries(self.facts, each) for each in stretches), strict=True)
        code = assemble(shape, [*chain(*items)], [*chain(*tries)])
        self.written.append(code)
        return code

    # Blocks and instructions

    def write_blocks(self, stretch: Stretch, blocks: frozenset[int], entry: int | None) -> None:
        """Write ``blocks`` with their sites mended, beginning with ``entry`` where it is given."""
        facts, order = self.facts, sorted(blocks)
        if entry is not None and order[0] != entry:
            stretch.add(emit.jump(stretch.label(entry)))
        for position, number in enumerate(order):
            block = facts.graph.blocks[number]
            stretch.add([stretch.label(number)])
            for index in range(max(block.start, stretch.starts_at), block.end):
                start = len(stretch.items)
                if index in self._unchanged and index not in stretch.places:
                    stretch.items.append(facts.instructions[index])
                else:
                    self._write_instruction(stretch, index)
                stretch.mark(start, facts.covered(index))
            following = order[position + 1] if position + 1 < len(order) else None
            falls = row(facts.instructions[block.end - 1].op).falls_through
            if falls and following != number + 1:
                stretch.add(emit.jump(stretch.label(number + 1)))

    def _find_unchanged(self) -> frozenset[int]:
        """Return the instructions that are copied as they are, wherever they are written."""
        tested = {index - 1 for index, site in self._sites.items() if _jumps(site)}
        return frozenset(
            index
            for index, instruction in enumerate(self.facts.instructions)
            if instruction.target is None
            and index not in self._sites
            and index not in self._splits
            and index not in tested
            and not isinstance(instruction.arg, CodeType)
            and row(instruction.op).ends != "return"
        )

    def _write_instruction(self, stretch: Stretch, index: int) -> None:
        if index in stretch.places:
            stretch.add([stretch.places[index]])
        instruction = self.facts.instructions[index]
        if stretch.is_plain:
            self._write_copy(stretch, index)
            return
        site, start = self._sites.get(index), len(stretch.items)
        if index in self._splits:
            self._branches.write_split(stretch, self._splits[index])
        if site is not None:
            self._write_site(stretch, site)
        stretch.locate(start, instruction.location)
        if site is None and self._tests_for_a_site(index):
            return  # the site decides first; it makes the test itself
        if site is None and row(instruction.op).ends == "return":
            _write_return(stretch, instruction)
        else:
            self._write_copy(stretch, index)

    def _write_copy(self, stretch: Stretch, index: int) -> None:
        copy = self._copier.copied(stretch, index)
        following = self._sites.get(index + 1)
        if following is not None and _jumps(following) and not stretch.is_plain:
            copy = emit.without_cast(copy)
        stretch.add([copy])

    def _tests_for_a_site(self, index: int) -> bool:
        """Return whether this is the cast to a bool right before a jump that is a site."""
        site = self._sites.get(index + 1)
        return site is not None and _jumps(site) and self.facts.instructions[index].op in TRUTHS

    def _write_site(self, stretch: Stretch, site: Site) -> None:
        match site.decision:
            case BranchLowering() as decision:
                self._branches.write_branch(stretch, site, decision)
            case GuardLowering() as decision:
                write_guard(self, stretch, site, decision)
            case OutputLowering() as decision:
                self._statements.write(stretch, site, decision)
            case TruthLowering():
                write_truth(stretch, site)


def _write_return(stretch: Stretch, instruction: Instruction) -> None:
    if instruction.op in CONSTANT_RETURNS and stretch.wraps_returns:
        stretch.add(emit.load_const((instruction.arg,), instruction.location))
        stretch.add(emit.return_value(instruction.location))
        return
    if stretch.wraps_returns:
        stretch.add(emit.build_tuple(1, instruction.location))
    if stretch.has_buffer:
        # A use at the end makes the buffer live after a graph break.
        stretch.add([*emit.load_local(BUFFER), *emit.pop_top()])
    stretch.add([instruction])


def _jumps(site: Site) -> bool:
    return isinstance(site.decision, (BranchLowering, GuardLowering, TruthLowering))
