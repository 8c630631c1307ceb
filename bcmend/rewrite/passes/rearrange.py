"""Reorder the instructions of a decoded function, remove some, or insert others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from bcmend.bytecode.assemble import Item
from bcmend.bytecode.instructions import FunctionCode, Instruction, Label, TryRange, retargeted
from bcmend.cfg.graph import build_graph


def moved(
    tries: Sequence[TryRange], origins: Sequence[int], handlers: Sequence[int]
) -> Iterator[TryRange]:
    """Yield the ranges over instructions that replace the instructions ``origins``, in this order.

    ``handlers`` are the new indices of the ranges' handlers.
    """
    for entry, handler in zip(tries, handlers, strict=True):
        start = None
        for index, origin in enumerate([*origins, -1]):
            covered = entry.covers(origin)
            if covered and start is None:
                start = index
            elif not covered and start is not None:
                yield replace(entry, start=start, end=index, handler=handler)
                start = None


def with_others(function: FunctionCode, others: Mapping[int, Instruction]) -> FunctionCode:
    """Return ``function`` with some instructions replaced, each at the same place of the source."""
    instructions = tuple(
        others[index]._replace(offset=each.offset, location=each.location)
        if index in others
        else each
        for index, each in enumerate(function.instructions)
    )
    return replace(function, instructions=instructions)


def without_unreachable(function: FunctionCode) -> FunctionCode:
    """Return ``function`` without instructions that control never reaches."""
    graph, code = build_graph(function), function.instructions
    reached = [index for index in range(len(code)) if graph.block_of[index] in graph.reachable]
    places: dict[int | Label, int] = {index: place for place, index in enumerate(reached)}
    instructions = retargeted((code[index] for index in reached), places.__getitem__)
    tries = [entry for entry in function.tries if entry.handler in places]
    handlers = [places[entry.handler] for entry in tries]
    return FunctionCode(function.shape, instructions, tuple(moved(tries, reached, handlers)))


def rewritten(
    function: FunctionCode, replacement: Callable[[int, Instruction], Iterable[Item]]
) -> FunctionCode:
    """Return ``function`` with each instruction replaced by what ``replacement`` gives for it.

    Targets of the new instructions are labels among them, or indices of instructions before. What
    replaces an instruction is in its try ranges, and a jump to it goes to the first of that.
    """
    instructions: list[Instruction] = []
    places: dict[int | Label, int] = {}
    for index, instruction in enumerate(function.instructions):
        places[index] = len(instructions)
        for item in replacement(index, instruction):
            if isinstance(item, Label):
                places[item] = len(instructions)
            else:
                instructions.append(item)
    places[len(function.instructions)] = len(instructions)
    tries = tuple(each.moved(places.__getitem__) for each in function.tries)
    return FunctionCode(function.shape, retargeted(instructions, places.__getitem__), tries)
