"""Find code that runs once: it stands behind a test of what it, or its caller, sets itself.

``if not getattr(model, "_ready", False): install(model); model._ready = True``, a cache that is
filled where it is empty, a lock taken around either. What such code does need not be captured: once
it has run, no call comes to it again. The answer goes by names and errs on both sides; whoever asks
runs one call in plain Python where it is yes.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import CodeType
from typing import Final

from bcmend.bytecode.decode import decode
from bcmend.bytecode.instructions import FunctionCode, Instruction, UnknownOpcode
from bcmend.bytecode.opcodes import row
from bcmend.cfg.graph import Graph, build_graph, walk

#: Line, last line, column, last column.
Position = tuple[int | None, ...]

#: What sets what a text names.
_SET_BY_TEXT: Final = frozenset({"setattr", "setdefault", "import_module", "__import__"})
#: Methods that change a container.
_CHANGES: Final = frozenset({"add", "append", "extend", "insert", "setdefault", "update"})


def runs_once(frames: Iterable[tuple[CodeType, Position]]) -> bool:
    """Return whether a stop is in code that runs once.

    Args:
        frames: the code and the place of each frame of the stop, innermost first.
    """
    tested: set[str] = set()
    changed: set[str] = set()
    for code, position in frames:
        try:
            function = decode(code)
        except (UnknownOpcode, ValueError):
            continue
        changed |= _changed_in(function)
        tested |= _tested_before(function, position)
    return not tested.isdisjoint(changed)


def _changed_in(function: FunctionCode) -> set[str]:
    """Return the names of what code sets, and of containers that it may change."""
    named = [(each, _name(each)) for each in function.instructions]
    names = {name for _, name in named if name is not None}
    found = {name for each, name in named if each.op in ("STORE_ATTR", "STORE_GLOBAL") and name}
    if names & _SET_BY_TEXT:
        found |= {name for each, name in named if each.op == "LOAD_CONST" and name}
    if names & _CHANGES or any(each.op == "STORE_SUBSCR" for each in function.instructions):
        found |= {name for each, name in named if each.op in ("LOAD_GLOBAL", "LOAD_ATTR") and name}
    return found - _CHANGES - _SET_BY_TEXT


def _tested_before(function: FunctionCode, position: Position) -> set[str]:
    """Return the names in tests that decide whether control comes to a place."""
    graph = build_graph(function)
    places = [
        index
        for index, each in enumerate(function.instructions)
        if each.location is not None and tuple(each.location) == position
    ]
    if not places:
        return set()
    stop = graph.block_of[places[-1]]
    return {
        name
        for block in graph.blocks
        if _decides(graph, block.index, stop)
        for each in function.instructions[block.start : block.end]
        if (name := _name(each)) is not None
    }


def _decides(graph: Graph, block: int, stop: int) -> bool:
    """Return whether control comes to ``stop`` through ``block`` alone, by one way out of it."""
    ways = graph.successors[block]
    if block == stop or len(ways) != 2 or row(_last(graph, block).op).jump in (None, "for_iter"):
        return False
    if stop in walk(0, _with_handlers(graph), block):
        return False
    return sum(stop in walk(way, _with_handlers(graph), block) for way in ways) == 1


def _last(graph: Graph, block: int) -> Instruction:
    return graph.function.instructions[graph.last(block)]


def _with_handlers(graph: Graph) -> list[tuple[int, ...]]:
    """Return where each block leads to, exceptions included."""
    handlers = map(graph.handler_block, range(len(graph.blocks)))
    caught = (() if each is None else (each,) for each in handlers)
    return [(*each, *more) for each, more in zip(graph.successors, caught, strict=True)]


def _name(instruction: Instruction) -> str | None:
    """Return the name or the text that an instruction refers to."""
    argument = instruction.arg
    if isinstance(argument, tuple):
        argument = argument[-1] if argument else None
    is_name = instruction.op == "LOAD_CONST" or "ATTR" in instruction.op
    is_name = is_name or any(each in instruction.op for each in ("GLOBAL", "METHOD", "NAME"))
    return argument if is_name and isinstance(argument, str) else None
