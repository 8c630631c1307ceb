"""Give a local that may be unbound a sentinel as its value: a mark.

An unbound local can be neither a live-in nor a live-out of an arm. So where that prevents a
lowering, the local holds a mark instead, from the first instruction of the function on. A read of a
local that may hold the mark tests that first, and then calls a function that fails as the read
would. What follows treats the mark like any constant: arms that differ in it differ as in None and
a tensor. What an inlined comprehension saves on the operand stack is left unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType
from typing import Final

from bcmend.analysis.code_effects import names_of
from bcmend.analysis.facts import Facts
from bcmend.analysis.liveness import bound_before
from bcmend.bytecode import emit
from bcmend.bytecode.assemble import Item, assemble
from bcmend.bytecode.instructions import FunctionCode, Instruction, Label, Location, Shape
from bcmend.bytecode.opcodes import NULLS, STARTS, row
from bcmend.names import NAMESPACE, UNBOUND
from bcmend.rewrite.passes.rearrange import rewritten

#: What CPython says of a local that is read while it is unbound (UNBOUNDLOCAL_ERROR_MSG).
_UNBOUND_LOCAL: Final = "cannot access local variable '{}' where it is not associated with a value"


def with_marks(facts: Facts, names: frozenset[str]) -> FunctionCode:
    """Return the function with a mark in each of ``names``, all of them locals, while unbound.

    Inserted instructions have the offset of the one that they stand before, but jumps have none.
    """
    function = facts.function
    first = next(i for i, each in enumerate(function.instructions) if each.op in STARTS)
    marked = sorted(names - frozenset(function.shape.argnames))

    def replacement(index: int, instruction: Instruction) -> Iterator[Item]:
        for item in _written(facts, index, instruction, names):
            yield _placed(item, instruction.offset)
        for name in marked if index == first else ():
            yield from (_placed(each, instruction.offset) for each in _mark(name, None))

    return rewritten(function, replacement)


def checks_in(facts: Facts, start: int, end: int) -> dict[int, int]:
    """Return where a stretch tests whether a variable is marked, and where it is read behind that.

    Such a test must not be deferred: a handler of the function may catch its failure.
    """
    found: dict[int, int] = {}
    for index in range(start, end):
        instruction = facts.instructions[index]
        if row(instruction.op).reads == "global" and names_of(instruction) == NAMESPACE:
            targets = (facts.instructions[each].target for each in range(index, end))
            read = next((each for each in targets if isinstance(each, int)), None)
            if read is not None:
                # CPython 3.13 has the NULL of a call behind the callable, older ones before it.
                found[index - (facts.instructions[index + 2].op not in NULLS)] = read
    return found


def _written(
    facts: Facts, index: int, instruction: Instruction, names: frozenset[str]
) -> Iterator[Item]:
    """Yield what replaces one instruction."""
    known, name = row(instruction.op), instruction.arg
    reads, deletes = known.reads == "local", known.deletes == "local"
    if not (reads or deletes) or (reads and deletes) or name not in names:
        yield instruction
        return
    location = instruction.location
    if name not in bound_before(facts.graph, facts.liveness, index):
        yield from _fail_if_marked(facts.function.shape.of_part((), ()), name, location)
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

    It raises the error itself: Dynamo does not trace an unbound variable, and no handler would see
    the error. The variable stays bound to the mark, so that handlers see the same whatever failed.
    """
    text = emit.load_const(_UNBOUND_LOCAL.format(name), location)
    error = emit.call_global((NAMESPACE, UnboundLocalError.__name__), [text], location)
    raising = emit.raise_value(location)
    return assemble(shape, (*emit.prologue(shape, location), *error, *raising), ())


def _mark(name: str, location: Location | None) -> Iterator[Item]:
    yield from emit.load_const(UNBOUND, location)
    yield from emit.store_local(name, location)


def _placed(item: Item, offset: int) -> Item:
    if isinstance(item, Label) or item.offset >= 0:
        return item
    return item._replace(offset=-1 if item.target is not None else offset)
