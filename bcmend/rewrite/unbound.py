"""Give a local that may be unbound a value that says so.

An arm cannot be given a local that has no value, nor leave one behind. So where that stands in the
way, the local holds a mark instead, from the first instruction of the function on. A read that may
meet the mark asks for it first, and if it is there, calls a function in which a local of that name
is unbound, so that reading it fails as it always did. What follows treats the mark like any
constant: arms that differ in it differ as in None and a tensor.

Reads a function and names of locals; produces the function with marks. Inserted instructions have
the offset of the one that they stand before, but for jumps, which have none. What an inlined
comprehension saves on the operand stack is left to it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import replace
from types import CodeType

from bcmend.analysis.facts import Facts
from bcmend.analysis.liveness import bound_before
from bcmend.codeobj import emit
from bcmend.codeobj.assemble import Item, assemble
from bcmend.codeobj.decode import FunctionCode, Instruction, Label, Location, Shape
from bcmend.codeobj.opcodes import row
from bcmend.names import NAMESPACE, UNBOUND
from bcmend.rewrite.rearrange import put_together

__all__ = ["with_marks"]


def with_marks(facts: Facts, names: frozenset[str]) -> FunctionCode:
    """Return the function with a mark in each of ``names``, all of them locals, while unbound."""
    function = facts.function
    marked = names - frozenset(function.shape.argnames)
    written: list[Item] = []
    places: list[int] = []  # where each instruction begins now, with what stands before it
    for index, instruction in enumerate(function.instructions):
        places.append(len(written))
        for item in _written(facts, index, instruction, names):
            written.append(_placed(item, instruction.offset))
        if instruction.op == "RESUME" and index == _first_resume(function):
            for name in sorted(marked):
                written.extend(_placed(each, instruction.offset) for each in _mark(name, None))
    return put_together(function, written, places)


def _first_resume(function: FunctionCode) -> int:
    return next(i for i, each in enumerate(function.instructions) if each.op == "RESUME")


def _without_arguments(shape: Shape) -> Shape:
    return replace(
        shape,
        argcount=0,
        posonlyargcount=0,
        kwonlyargcount=0,
        flags=inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS,
        argnames=(),
        varnames=(),
        cellvars=(),
        freevars=(),
        docstring=None,
    )


def _written(
    facts: Facts, index: int, instruction: Instruction, names: frozenset[str]
) -> Iterator[Item]:
    """Yield what becomes of one instruction."""
    known, name = row(instruction.op), instruction.arg
    reads, deletes = known.reads == "local", known.deletes == "local"
    if not (reads or deletes) or (reads and deletes) or name not in names:
        yield instruction
        return
    location = instruction.location
    if name not in bound_before(facts.graph, facts.liveness, index):
        yield from _fail_if_marked(_without_arguments(facts.function.shape), name, location)
    if deletes:
        yield from _mark(name, location)
    else:
        yield instruction


def _fail_if_marked(shape: Shape, name: str, location: Location | None) -> Iterator[Item]:
    bound = Label(f"{name} is bound")
    yield from emit.call_global((NAMESPACE, "unbound"), [emit.load_local(name, location)], location)
    yield from emit.jump_if_false(bound, location)
    yield from emit.call_value(emit.make_function(_failing(shape, name, location)), [], location)
    yield from emit.pop_top(location)
    yield bound


def _failing(shape: Shape, name: str, location: Location | None) -> CodeType:
    """Return the code of a function that reads ``name`` and nothing has bound it there.

    In the function itself it stays bound to the mark: handlers see one thing, whatever failed.
    """
    read = emit.load_local(name, location, may_be_unbound=True)
    items = (*emit.prologue(shape, location), *read, *emit.return_value(location))
    return assemble(shape, items, ())


def _mark(name: str, location: Location | None) -> Iterator[Item]:
    yield from emit.load_const(UNBOUND, location)
    yield from emit.store_local(name, location)


def _placed(item: Item, offset: int) -> Item:
    if isinstance(item, Label) or item.offset >= 0:
        return item
    return replace(item, offset=-1 if item.target is not None else offset)
