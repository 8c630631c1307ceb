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
from types import CodeType, FunctionType

from bcmend.analysis.effects import names_of
from bcmend.analysis.facts import Facts
from bcmend.analysis.liveness import bound_before
from bcmend.codeobj import emit
from bcmend.codeobj.assemble import Item, assemble
from bcmend.codeobj.decode import FunctionCode, Instruction, Label, Location, Shape
from bcmend.codeobj.opcodes import row
from bcmend.names import NAMESPACE, UNBOUND
from bcmend.rewrite.rearrange import put_together

__all__ = ["checks_in", "with_marks"]


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


def checks_in(facts: Facts, start: int, end: int) -> dict[int, int]:
    """Return where a stretch asks whether a variable is marked, and where it is read behind that.

    The question fails at its place, where a handler may wait for it: it must not be made later.
    """
    found: dict[int, int] = {}
    for index in range(start, end):
        instruction = facts.instructions[index]
        if row(instruction.op).reads == "global" and names_of(instruction) == NAMESPACE:
            targets = (facts.instructions[each].target for each in range(index, end))
            read = next((each for each in targets if isinstance(each, int)), None)
            if read is not None:
                # CPython 3.13 has the NULL of a call behind the callable, older ones before it.
                found[index - (facts.instructions[index + 2].op != "PUSH_NULL")] = read
    return found


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
    """Return the code of a function that fails as reading ``name`` does while it is unbound.

    It raises the error itself: Dynamo takes a variable without a value for something that it cannot
    trace, which no handler sees. In the function itself the variable stays bound to the mark:
    handlers see one thing, whatever failed.
    """
    text = emit.load_const(_what_reading_says(shape, name), location)
    error = emit.call_global((NAMESPACE, UnboundLocalError.__name__), [text], location)
    raising = Instruction("RAISE_VARARGS", 1, location=location)
    return assemble(shape, (*emit.prologue(shape, location), *error, raising), ())


def _what_reading_says(shape: Shape, name: str) -> str:
    """Return the message with which this Python refuses to read a local that is unbound."""
    read = emit.load_local(name, may_be_unbound=True)
    code = assemble(shape, (*emit.prologue(shape), *read, *emit.return_value()), ())
    try:
        FunctionType(code, {})()
    except UnboundLocalError as error:
        return str(error)
    raise AssertionError(f"{name} is bound")


def _mark(name: str, location: Location | None) -> Iterator[Item]:
    yield from emit.load_const(UNBOUND, location)
    yield from emit.store_local(name, location)


def _placed(item: Item, offset: int) -> Item:
    if isinstance(item, Label) or item.offset >= 0:
        return item
    return replace(item, offset=-1 if item.target is not None else offset)
