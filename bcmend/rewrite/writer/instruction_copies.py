"""Copy instructions of the original function for a stretch, of which only labels are changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import CodeType

from bcmend.analysis.facts import Facts
from bcmend.bytecode.assemble import Item
from bcmend.bytecode.instructions import Instruction, Label, decoded_index
from bcmend.bytecode.opcodes import CALLS
from bcmend.rewrite.sites.plan import CodeRange
from bcmend.rewrite.writer.stretch import Stretch


@dataclass(frozen=True, slots=True)
class Copier:
    """Copies instructions of one function."""

    facts: Facts
    nested: Mapping[CodeType, CodeType]  # code objects among its constants: what replaces them

    def copied(self, stretch: Stretch, index: int) -> Instruction:
        """Return instruction ``index`` as it stands in ``stretch``."""
        instruction = self.facts.instructions[index]
        if instruction.target is not None:
            target = decoded_index(instruction.target)
            place = stretch.places.get(target)
            if place is None:
                place = stretch.label(self.facts.graph.block_of[target])
            return instruction._replace(arg=None, target=place)
        if isinstance(instruction.arg, CodeType):
            return instruction._replace(arg=self.nested.get(instruction.arg, instruction.arg))
        return instruction

    def part(self, stretch: Stretch, part: CodeRange) -> list[Item]:
        """Return a copy of what pushes an operand; its jumps stay inside of it."""
        targets = (self.facts.instructions[i].target for i in range(part.start, part.end))
        labels = {each: Label(f"copy of {each}") for each in targets if isinstance(each, int)}
        items: list[Item] = []
        for index in range(part.start, part.end):
            if index in labels:
                items.append(labels[index])
            target = self.facts.instructions[index].target
            copied = self.copied(stretch, index)
            items.append(copied._replace(target=labels[target]) if target in labels else copied)
        if part.end in labels:
            items.append(labels[part.end])
        return items

    def load(self, stretch: Stretch, part: CodeRange) -> list[Instruction]:
        """Return the loads of ``part`` alone, without the NULL of a call that ends behind them."""
        first, *rest = (self.copied(stretch, index) for index in range(part.start, part.end))
        if isinstance(first.arg, tuple) and not any(each.op in CALLS for each in rest):
            first = first._replace(arg=(False, *first.arg[1:]))
        return [first, *rest]

    def place(self, stretch: Stretch, index: int) -> Label:
        """Return a label for an instruction of the stretch, whether it begins a block or not."""
        graph = self.facts.graph
        block = graph.block_of[index]
        if graph.blocks[block].start == index:
            return stretch.label(block)
        return stretch.places.setdefault(index, Label(f"at {index}"))

    def mark_targets(self, stretch: Stretch, part: CodeRange) -> None:
        """Prepare labels for the jumps inside a statement."""
        for index in range(part.start, part.end):
            target = self.facts.instructions[index].target
            if isinstance(target, int):
                stretch.places.setdefault(target, Label(f"at {target}"))
