"""The frames that Dynamo is tracing: who called whom, and who resumed whom.

Dynamo's ``parent`` of a generator's frame is the frame that made the generator. What resumes it may
be another one, and what the generator raises or sees passes through both.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import cache
from itertools import groupby
from types import CodeType
from typing import Any

from torch._dynamo.resume_execution import ContinueExecutionCache

from bcmend.codeobj.decode import Location, decode
from bcmend.codeobj.line_table import checked, encode
from bcmend.codeobj.opcodes import UnknownOpcode
from bcmend.names import BUFFER, PREFIX

__all__ = [
    "arguments_of",
    "being_traced",
    "drains_for_the_caller",
    "ends_at_a_boundary",
    "is_captured_whole",
    "named",
    "resumed",
    "with_lines",
]


def resumed(code: CodeType) -> CodeType:
    """Return the code that Dynamo goes on with behind a graph break; other code is its own."""
    known = ContinueExecutionCache.generated_code_metadata.get(code)
    return code if known is None else known.code


@cache
def with_lines(code: CodeType) -> CodeType:
    """Return code that Dynamo goes on with behind a graph break, with the lines of its origin.

    Dynamo takes them from all that stands before the break, to which a loop comes back.
    """
    origin = resumed(code)
    if origin is code:
        return code
    try:
        here, there = decode(code).instructions, decode(origin).instructions
    except UnknownOpcode:
        return code
    one, other = ([(each.op, repr(each.arg)) for each in those] for those in (here, there))
    locations = [Location(*each) for each in code.co_positions()]
    starts = [*(each.offset // 2 for each in here), len(locations)]
    for first, second, count in SequenceMatcher(None, one, other, False).get_matching_blocks():
        for index, known in enumerate(there[second : second + count], first):
            units = range(starts[index], starts[index + 1])
            locations[units.start : units.stop] = [known.location or Location()] * len(units)
    runs = ((checked(each), len(list(same))) for each, same in groupby(locations))
    return code.replace(co_linetable=encode(runs, code.co_firstlineno))


def is_captured_whole(tx: Any) -> bool:
    """Whether nothing runs between what is traced and the end of the call."""
    return bool(tx.one_graph or tx.error_on_graph_break)


def ends_at_a_boundary(tx: Any) -> bool:
    """Whether what the root frame returns goes to a boundary, with nothing in between."""
    return BUFFER in tx.output.root_tx.f_code.co_varnames and is_captured_whole(tx)


def arguments_of(code: CodeType) -> tuple[str, ...]:
    """Return the names of all arguments of a function, in the order of its variables."""
    stars = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + stars]


def being_traced(tx: Any) -> Iterator[Any]:
    """Yield ``tx`` and every frame that waits for it, each once, innermost first."""
    seen: set[int] = set()
    for frame in (tx, *reversed(tx.output._current_tx)):
        while frame is not None and id(frame) not in seen:
            seen.add(id(frame))
            yield frame
            frame = getattr(frame, "parent", None)


def named(tx: Any) -> Iterator[Any]:
    """Yield what the frames being traced hold under names of the program."""
    for frame in being_traced(tx):
        for name, value in frame.symbolic_locals.items():
            if not name.startswith(PREFIX):
                yield value


def drains_for_the_caller(tx: Any) -> bool:
    """Whether Dynamo runs a generator to its end only because the call hands it out.

    In eager execution it has not run by then. Nothing else is traced while the outermost frame
    returns.
    """
    returns = tx.output.root_tx.current_instruction.opname == "RETURN_VALUE"
    return returns or bool(tx.output.current_tracer.is_reconstructing_generator)
