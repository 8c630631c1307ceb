"""Functions that are broken at random: what reads or writes them says so, or the outcome is sound.

A function is taken apart, something in it is broken, and it is put together; or the bytes of its
code are, and it is read. Either raises one of the two errors for that, or gives code that can be
read and written again. None of it is run.
"""

from __future__ import annotations

import dis
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import CodeType
from typing import Any, Final

from bcmend.bytecode.assemble import Item, assemble, labelled
from bcmend.bytecode.decode import decode
from bcmend.bytecode.instructions import (
    AssembleError,
    DecodeError,
    FunctionCode,
    Instruction,
    Label,
    Location,
    Shape,
    TryRange,
)
from bcmend.bytecode.opcodes import ROWS
from tests.bytecode.roundtrip import Tally, check, differences

#: Arguments that most instructions have no use for, and places that no source has.
_ARGUMENTS: Final[tuple[Any, ...]] = (
    None, -1, 0, 3, 300, 2**40, "name", (), (True, "name"), ("name", True), (1, 2, 3), 0.5, 1j,
    frozenset([1]), (True, False, "name"),
)  # fmt: skip
_LOCATIONS: Final = (
    Location(5, 3, 1, 1),
    Location(5, 5, 9, 1),
    Location(-2, 5, 1, 1),
    Location(5, None, 1, 2),
    Location(7, 9, 200, 100_000),
    Location(10**6, 10**6, 3, 4),
    Location(),
)

Parts = tuple[Shape, list[Item], list[TryRange]]


def breakage_problems(code: CodeType, source: random.Random) -> Iterator[str]:
    """Break a code object in one way; yield what is wrong with how that is answered."""
    try:
        function = decode(code)
    except DecodeError:
        return
    if source.random() < 0.3:
        yield from _unreadable(code, source)
        return
    shape, items, tries = function.shape, *labelled(function)
    for _ in range(source.choice((1, 1, 2))):
        shape, items, tries = source.choice(_BREAKAGES)((shape, items, tries), source)
    try:
        again = assemble(shape, items, tries)
    except (AssembleError, DecodeError) as error:
        if not str(error):
            yield "broken code is refused without a word"
        return
    read = decode(again)
    yield from differences(again, assemble(read.shape, *labelled(read)))
    if _steps(read) != _steps(function) and not [*differences(code, again)]:
        yield "broken code is not told from the code that it was"


def _steps(function: FunctionCode) -> list[tuple[object, ...]]:
    return [(each.op, repr(each.arg), each.target) for each in function.instructions]


def _unreadable(code: CodeType, source: random.Random) -> Iterator[str]:
    """Put other bytes in place of some of the code, and read it."""
    broken, tally = _with_other_bytes(code, source), Tally()
    check(broken, tally)
    try:
        decode(broken)
    except DecodeError as error:
        if not str(error) or len(tally.refused) != 1:
            yield "broken bytes are refused without a word"
    else:
        if tally.refused:
            yield "broken bytes are refused, and yet they can be read"


def with_other_bytes(module: CodeType, source: random.Random) -> CodeType:
    """Put other bytes in place of some of the code of functions, however deep in a module."""
    constants = tuple(
        with_other_bytes(_with_other_bytes(each, source), source)
        if isinstance(each, CodeType)
        else each
        for each in module.co_consts
    )
    return module.replace(co_consts=constants)


def _with_other_bytes(code: CodeType, source: random.Random) -> CodeType:
    data = bytearray(code.co_code)
    # CPython writes to the caches of what it takes for an instruction, even behind the end.
    places = range(0, len(data) - 2 * _MOST_CACHES, 2)
    for _ in range(source.choice((1, 2)) if places else 0):
        data[source.choice(places)] = source.choice(_NUMBERS)
    try:
        return code.replace(co_code=bytes(data))
    except ValueError:  # CPython itself has looked
        return code


#: Of some instructions CPython takes it for granted that it has written them itself.
_NUMBERS: Final = [
    number
    for name, number in sorted(dis.opmap.items())
    if number < 200 and not name.startswith(("ENTER_", "INSTRUMENTED_", "INTERPRETER_", "RESERVED"))
]
_MOST_CACHES: Final = 12


# --- breakages -----------------------------------------------------------------------------------


def _some_instruction(items: list[Item], source: random.Random) -> int:
    found = [at for at, each in enumerate(items) if isinstance(each, Instruction)]
    return source.choice(found or [-1])


def _of_instruction(change: Callable[[Instruction, random.Random], Instruction]) -> Any:
    """Return what changes one instruction of a function."""

    def breakage(parts: Parts, source: random.Random) -> Parts:
        shape, items, tries = parts
        at = _some_instruction(items, source)
        if at < 0:
            return parts
        changed = [*items]
        changed[at] = change(items[at], source)  # type: ignore[arg-type]
        return shape, changed, tries

    return breakage


def _argument(each: Instruction, source: random.Random) -> Instruction:
    return each._replace(arg=source.choice(_ARGUMENTS))


def _operation(each: Instruction, source: random.Random) -> Instruction:
    return each._replace(op=source.choice((*ROWS, "NO_SUCH_INSTRUCTION")))


def _location(each: Instruction, source: random.Random) -> Instruction:
    return each._replace(location=source.choice(_LOCATIONS))


def _target(each: Instruction, source: random.Random) -> Instruction:
    return each._replace(target=source.choice((None, Label("nowhere"))))


def _items(parts: Parts, source: random.Random) -> Parts:
    """Leave something out, have it twice, or have it elsewhere."""
    shape, items, tries = parts
    if not items:
        return parts
    at, to = source.randrange(len(items)), source.randrange(len(items) + 1)
    changed = [*items]
    if source.random() < 0.6:
        changed.pop(at)
    if source.random() < 0.6:
        changed.insert(to, items[at])
    return shape, changed, tries


def _end(parts: Parts, source: random.Random) -> Parts:
    shape, items, tries = parts
    return shape, items[: source.randrange(len(items) + 1)], tries


def _tries(parts: Parts, source: random.Random) -> Parts:
    """Add a try range, or change one, to one between any of the labels."""
    shape, items, tries = parts
    labels = [each for each in items if isinstance(each, Label)]
    if len(labels) < 2:
        return parts
    start, end, handler = (source.choice(labels) for _ in range(3))
    added = TryRange(start, end, handler, source.randrange(3), source.random() < 0.5)
    if tries and source.random() < 0.7:
        known = source.choice(tries)
        field = source.choice(("start", "end", "handler", "depth", "push_lasti"))
        added = replace(known, **{field: getattr(added, field)})
    kept = [each for each in tries if source.random() < 0.7]
    return shape, items, [*kept, added]


def _shape(parts: Parts, source: random.Random) -> Parts:
    """Change what surrounds the instructions: arguments and variables."""
    shape, items, tries = parts
    names = ("argnames", "varnames", "cellvars", "freevars")
    name = source.choice(names)
    known: tuple[str, ...] = getattr(shape, name)
    changed: tuple[str, ...] = source.choice(
        (known[1:], (*known, "added"), (*known, *known[:1]), tuple(reversed(known)), ())
    )
    counts = ("argcount", "posonlyargcount", "kwonlyargcount")
    if source.random() < 0.4:
        count = source.choice(counts)
        return replace(shape, **{count: source.randrange(4)}), items, tries  # type: ignore[arg-type]
    return replace(shape, **{name: changed}), items, tries  # type: ignore[arg-type]


_BREAKAGES: Final[tuple[Callable[[Parts, random.Random], Parts], ...]] = (
    _of_instruction(_argument),
    _of_instruction(_argument),
    _of_instruction(_operation),
    _of_instruction(_location),
    _of_instruction(_target),
    _items,
    _items,
    _end,
    _tries,
    _tries,
    _shape,
)
