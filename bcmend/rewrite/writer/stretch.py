"""Code that is being written, before it is assembled.

A stretch becomes a code object, or one of the two halves of a generator's: the body of a function,
a region, a raising arm or a deferred statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Protocol

from bcmend.analysis.facts import Facts
from bcmend.bytecode.assemble import Item
from bcmend.bytecode.instructions import Instruction, Label, Location, Shape
from bcmend.rewrite.sites.plan import RegionKey

Emitted = Sequence[Item]


@dataclass(slots=True)
class Stretch:
    """Code that is being written."""

    base: int = 0  # operands that lie under it in the function and not in the new code
    outer: frozenset[int] = frozenset()  # try ranges that cover all of it and stay outside
    wraps_returns: bool = False  # whether a returned value is put in a tuple (in arms)
    has_buffer: bool = False  # whether it is a body that is given the buffer of the call
    is_plain: bool = False  # whether it is never traced, so that no site in it needs a lowering
    region: RegionKey | None = None  # the region that it is the function of
    starts_at: int = 0  # the first instruction that is written
    items: list[Item] = field(default_factory=list)
    #: Bounds of runs of items, and the index of the instruction whose handlers each has: that which
    #: it was written for, or one at the join where it calls a region.
    marks: list[tuple[int, int, int]] = field(default_factory=list)
    labels: dict[int, Label] = field(default_factory=dict)  # of blocks
    places: dict[int, Label] = field(default_factory=dict)  # of other instructions

    def add(self, emitted: Iterable[Item]) -> None:
        """Append instructions and labels."""
        self.items.extend(emitted)

    def mark(self, start: int, index: int) -> None:
        """Give the unmarked items from ``start`` on the handlers of instruction ``index``."""
        marked = self.marks[-1][1] if self.marks else 0
        if marked < len(self.items):
            self.marks.append((max(start, marked), len(self.items), index))

    def locate(self, start: int, location: Location | None) -> None:
        """Give the items from ``start`` on that have no location this one."""
        for position, item in enumerate(self.items[start:], start):
            if isinstance(item, Instruction) and item.location is None:
                self.items[position] = item._replace(location=location)

    def label(self, block: int) -> Label:
        """Return the label of a block."""
        return self.labels.setdefault(block, Label(f"block {block}"))


class BlockWriter(Protocol):
    """What the writers of single sites need of the writer of the function."""

    @property
    def facts(self) -> Facts:
        """The function that is rewritten."""

    def write_blocks(self, stretch: Stretch, blocks: frozenset[int], entry: int | None) -> None:
        """Write ``blocks`` with their sites mended, beginning with ``entry`` where it is given."""

    def finish(self, stretch: Stretch, shape: Shape) -> CodeType:
        """Return the code object of a stretch that is complete."""
