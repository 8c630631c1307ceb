"""Decides how a delivery goes on in which something fails.

Where output fails because of what it goes to (a full disk, a handler that raises), all that follows
in the program has run, and its output is delivered before the first error is raised. A check that
fails ends the delivery, and so does an argument that cannot be made.
"""

from __future__ import annotations

import dis
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType, TracebackType
from typing import Any, Final

from bcmend.bytecode.decode import BEFORE_CALLS, operation
from bcmend.bytecode.opcodes import CALLS
from bcmend.knowledge.interruptions import is_interruption

_OWN: Final = __name__.partition(".")[0]


@dataclass(slots=True)
class Failures:
    """The errors of one delivery in order."""

    errors: list[BaseException] = field(default_factory=list)

    @property
    def is_interrupted_twice(self) -> bool:
        """Return whether the delivery itself is to end: the first interrupt is for the call."""
        return len(list(self._interrupts())) > 1

    def to_be_raised(self) -> BaseException:
        """Return the first error, with the others in its notes; an interrupt before all others."""
        first = next(self._interrupts(), self.errors[0])
        for each in self.errors:
            if each is not first:
                first.add_note(f"Other output of this call has failed too: {each!r}")
        return first

    def _interrupts(self) -> Iterator[BaseException]:
        return (
            each for each in self.errors if not isinstance(each, Exception) or is_interruption(each)
        )


def is_of_an_argument(error: BaseException, action: Any, inputs: tuple[Any, ...]) -> bool:
    """Return whether a statement has failed before its last call, or over a text in it."""
    codes = {each.__code__ for each in _functions_in((action, inputs))}
    entry = error.__traceback__
    while entry is not None and entry.tb_frame.f_code not in codes:
        entry = entry.tb_next
    if entry is None:
        return False
    is_before = entry.tb_lasti < _last_call(entry.tb_frame.f_code)
    return is_before or _is_of_a_text(error, entry.tb_next)


def _is_of_a_text(error: BaseException, entry: TracebackType | None) -> bool:
    """Return whether a call, ``entry`` being inside it, has failed to make the text of an argument.

    A call that runs no Python raises a ``TypeError`` for an argument that it cannot write, and
    other errors for what it writes to.
    """
    if entry is None:
        return isinstance(error, TypeError)
    frames = (frame for frame, _ in traceback.walk_tb(entry))
    return any(frame.f_code.co_name in _MAKING_TEXTS for frame in frames)


def _last_call(code: CodeType) -> int:
    """Return the offset of the last call of a statement; 0 if there is none.

    Where an error comes out of a call, the traceback may name what makes it ready, or what follows.
    """
    instructions = list(dis.get_instructions(code))
    calls = (at for at, each in enumerate(instructions) if operation(each) in CALLS)
    last = max(calls, default=0)
    while last and operation(instructions[last - 1]) in BEFORE_CALLS:
        last -= 1
    return instructions[last].offset


_MAKING_TEXTS: Final = ("__str__", "__repr__", "__format__")


def _functions_in(value: Any) -> Iterator[FunctionType]:
    """Yield the functions of the program, not of bcmend, in nested tuples."""
    if type(value) is tuple:
        for each in value:
            yield from _functions_in(each)
    elif isinstance(value, FunctionType) and str(value.__module__).partition(".")[0] != _OWN:
        yield value
