"""The try ranges of code that is being written."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from bcmend.analysis.facts import Facts
from bcmend.bytecode import emit
from bcmend.bytecode.assemble import Item
from bcmend.bytecode.instructions import Instruction, Label, TryRange, decoded_index
from bcmend.rewrite.writer.stretch import Stretch


def with_tries(facts: Facts, stretch: Stretch) -> tuple[list[Item], list[TryRange]]:
    """Return the items of a stretch with labels put around them, and ranges between these labels.

    A range of the function is left out where it stays outside of the stretch, and where its handler
    is not written.
    """
    tries: list[TryRange] = []
    inserted: dict[int, list[Label]] = {}
    for position, entry in enumerate(facts.function.tries):
        handler = facts.graph.block_of[decoded_index(entry.handler)]
        if position in stretch.outer or handler not in stretch.labels:
            continue
        for first, last in _runs(stretch, entry):
            start, end = Label("try"), Label("end of try")
            inserted.setdefault(first, []).append(start)
            inserted.setdefault(last, []).append(end)
            depth = entry.depth - stretch.base
            tries.append(TryRange(start, end, stretch.labels[handler], depth, entry.push_lasti))
    if not tries:
        return stretch.items, tries
    starts = {entry.start for entry in tries}
    items: list[Item] = []
    for index, item in enumerate(stretch.items):
        around = inserted.get(index, ())
        items.extend(around)
        if around and not starts.isdisjoint(around) and _begins_with_jump(stretch, index):
            # Dynamo (torch/_dynamo/bytecode_transformation.py, fix_extended_args) cannot
            # write a range that begins with an instruction that needs EXTENDED_ARG.
            items.extend(emit.nothing())
        items.append(item)
    items.extend(inserted.get(len(stretch.items), ()))
    return items, tries


def _begins_with_jump(stretch: Stretch, index: int) -> bool:
    """Return whether the first instruction from an item on is a jump."""
    rest = (item for item in stretch.items[index:] if isinstance(item, Instruction))
    return any(first.target is not None for first in islice(rest, 1))


def _runs(stretch: Stretch, entry: TryRange) -> list[tuple[int, int]]:
    """Return the bounds of the items written for the instructions that ``entry`` covers.

    Labels do not end a run: a test and the jump that it decides are in one, with nothing between.
    """
    runs: list[tuple[int, int]] = []
    start, end = entry.bounds
    for first, last, index in stretch.marks:
        if not start <= index < end or first == last:
            continue
        if runs and not _has_instructions(stretch.items[runs[-1][1] : first]):
            runs[-1] = (runs[-1][0], last)
        else:
            runs.append((first, last))
    return runs


def _has_instructions(items: Sequence[Item]) -> bool:
    return any(isinstance(each, Instruction) for each in items)
