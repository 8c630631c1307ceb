"""Find code that runs once: it stands behind a test of what it, or its caller, sets itself.

``if not getattr(model, "_ready", False): install(model); model._ready = True``, a cache that is
filled where it is empty, a lock taken around either. What such code does need not be captured: once
it has run, no call comes to it again. The answer goes by names, also by those that functions set
which the innermost code calls, and errs on both sides; whoever asks runs one call in plain Python
where it is yes.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import CodeType, FunctionType, MappingProxyType
from typing import Any, Final, NamedTuple

from bcmend.bytecode.decode import decode
from bcmend.bytecode.instructions import FunctionCode, Instruction, UnknownOpcode
from bcmend.bytecode.opcodes import (
    ATTRIBUTE_LOADS,
    ATTRIBUTE_STORES,
    CONSTANT_LOADS,
    GLOBAL_STORES,
    ITEM_STORES,
    METHOD_LOADS,
    NAME_LOADS,
    row,
)
from bcmend.cfg.graph import Graph, build_graph, walk

#: Line, last line, column, last column.
Position = tuple[int | None, ...]

#: What sets what a text names.
_SET_BY_TEXT: Final = frozenset({"setattr", "setdefault", "import_module", "__import__"})
_READS: Final = (ATTRIBUTE_LOADS - METHOD_LOADS) | NAME_LOADS
_STORES: Final = ATTRIBUTE_STORES | GLOBAL_STORES
#: How many instructions before a store to an item the container is looked for.
_NEAR: Final = 5
#: What is set on the tensors of every call.
_OF_TENSORS: Final = frozenset({"data", "grad", "requires_grad"})
#: Methods that change a container.
_CHANGES: Final = frozenset({"add", "append", "extend", "insert", "setdefault", "update"})


class Place(NamedTuple):
    """Where a frame is: its code, the instruction, and the globals that it sees, if known."""

    code: CodeType
    position: Position
    names: Mapping[str, Any] = MappingProxyType({})


def runs_once(frames: Iterable[Place]) -> bool:
    """Return whether a stop is in code that runs once; its frames come innermost first."""
    tested: set[str] = set()
    changed: set[str] = set()
    for number, (code, position, names) in enumerate(frames):
        if (function := _decoded(code)) is None:
            continue
        changed |= _changed_in(function)
        tested |= _tested_before(function, position)
        if number == 0:
            for called in _named_in(function, names):
                changed |= _changed_in(called)
    return not tested.isdisjoint(changed)


def _decoded(code: CodeType) -> FunctionCode | None:
    try:
        return decode(code)
    except (UnknownOpcode, ValueError):
        return None


def _named_in(function: FunctionCode, names: Mapping[str, Any]) -> Iterator[FunctionCode]:
    """Yield the functions among ``names`` that code reads."""
    read = dict.fromkeys(_name(each) for each in function.instructions if each.op in NAME_LOADS)
    for value in (names.get(name) for name in read if name is not None):
        if isinstance(value, FunctionType) and (found := _decoded(value.__code__)) is not None:
            yield found


def _changed_in(function: FunctionCode) -> set[str]:
    """Return the names of what code sets, and of containers that it may change."""
    instructions = function.instructions
    found = {
        name
        for each in instructions
        if each.op in _STORES and (name := _name(each)) is not None and name not in _OF_TENSORS
    }
    if _SET_BY_TEXT.intersection(map(_any_name, instructions)):
        found |= {str(each.arg) for each in instructions if each.op in CONSTANT_LOADS}
    for index, each in enumerate(instructions):
        before = instructions[max(0, index - _NEAR) : index]
        if each.op in ITEM_STORES:
            found |= _containers(before)
        elif each.op in ATTRIBUTE_LOADS and _any_name(each) in _CHANGES:
            found |= _containers(before[-1:])
    return found


def _containers(instructions: Sequence[Instruction]) -> set[str]:
    return {name for each in instructions if each.op in _READS and (name := _name(each))}


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
    if stop in walk(0, graph.leading_to, block):
        return False
    return sum(stop in walk(way, graph.leading_to, block) for way in ways) == 1


def _last(graph: Graph, block: int) -> Instruction:
    return graph.function.instructions[graph.last(block)]


def _name(instruction: Instruction) -> str | None:
    """Return the variable, the attribute that is no method, or the text that is referred to."""
    name = _any_name(instruction)
    if name is None or instruction.op in CONSTANT_LOADS:
        return name
    if instruction.op not in _READS and instruction.op not in _STORES:
        return None
    is_method = instruction.op in ATTRIBUTE_LOADS and isinstance(instruction.arg, tuple)
    if is_method and instruction.arg[0]:
        return None
    return None if hasattr(builtins, name) else name


def _any_name(instruction: Instruction) -> str | None:
    """Return the name that an instruction has, or its text; ``None`` for other arguments."""
    argument = instruction.arg
    if instruction.op not in CONSTANT_LOADS and isinstance(argument, tuple) and argument:
        argument = argument[-1]  # behind flags
    return argument if isinstance(argument, str) else None
