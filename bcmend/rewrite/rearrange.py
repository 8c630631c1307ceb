"""Put the instructions of a function in another order, leave some out, or put others between.

Reads a decoded function; produces one of the same kind, with its try ranges and jumps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from bcmend.cfg.graph import build_graph, decoded_index
from bcmend.codeobj.assemble import Item
from bcmend.codeobj.decode import FunctionCode, Instruction, Label, TryRange

__all__ = ["moved", "put_together", "with_others", "without_unreachable"]


def moved(
    tries: Sequence[TryRange], origins: Sequence[int], handlers: Mapping[int, int]
) -> Iterator[TryRange]:
    """Yield the ranges over instructions that stand in the place of ``origins``."""
    for position, entry in enumerate(tries):
        first, last = decoded_index(entry.start), decoded_index(entry.end)
        start = None
        for index, origin in enumerate([*origins, -1]):
            covered = first <= origin < last
            if covered and start is None:
                start = index
            elif not covered and start is not None:
                yield replace(entry, start=start, end=index, handler=handlers[position])
                start = None


def with_others(function: FunctionCode, others: Mapping[int, Instruction]) -> FunctionCode:
    """Put other instructions in the place of some, for the same place of the source."""
    instructions = tuple(
        replace(others[index], offset=each.offset, location=each.location)
        if index in others
        else each
        for index, each in enumerate(function.instructions)
    )
    return replace(function, instructions=instructions)


def without_unreachable(function: FunctionCode) -> FunctionCode:
    """Leave out what has been copied to another place."""
    graph = build_graph(function)
    kept = [
        index
        for index in range(len(function.instructions))
        if graph.block_of[index] in graph.reachable
    ]
    places = {index: place for place, index in enumerate(kept)}
    instructions = tuple(
        instruction
        if instruction.target is None
        else replace(instruction, target=places[decoded_index(instruction.target)])
        for instruction in (function.instructions[index] for index in kept)
    )
    reachable = [entry for entry in function.tries if decoded_index(entry.handler) in places]
    handlers = {
        position: places[decoded_index(entry.handler)] for position, entry in enumerate(reachable)
    }
    return FunctionCode(function.shape, instructions, tuple(moved(reachable, kept, handlers)))


def put_together(
    function: FunctionCode, written: Sequence[Item], places: Sequence[int]
) -> FunctionCode:
    """Put indices in the place of labels, and of the indices of before.

    Args:
        function: as it was.
        written: its instructions, with others and labels between them.
        places: for each instruction of before, where it begins among these.
    """
    indices: list[int] = []  # of each item among the instructions
    labels: dict[Label, int] = {}
    count = 0
    for item in written:
        indices.append(count)
        if isinstance(item, Label):
            labels[item] = count
        else:
            count += 1
    indices.append(count)
    places = [*places, len(written)]

    def moved(place: int | Label) -> int:
        if isinstance(place, Label) and place in labels:
            return labels[place]
        return indices[places[decoded_index(place)]]

    instructions = tuple(
        each if each.target is None else replace(each, target=moved(each.target))
        for each in written
        if not isinstance(each, Label)
    )
    tries = tuple(
        replace(each, start=moved(each.start), end=moved(each.end), handler=moved(each.handler))
        for each in function.tries
    )
    return FunctionCode(function.shape, instructions, tries)
