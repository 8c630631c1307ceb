"""Classify the exception that ended the trace of an arm: whether the program raises there.

That is certain where Dynamo traced a ``raise`` statement, or a read of a variable that is not
bound. It is likely where an operation failed on fake tensors, Dynamo's model of Python raised, or
Dynamo cannot follow the making of an exception; a model may be wrong, though, so that has to be
tried before it is relied upon.
"""

from __future__ import annotations

import os
import traceback
from enum import Enum, auto
from types import CodeType, FrameType
from typing import Final

from bcmend.dynamo import compat, frames
from bcmend.reports.places import source_line

#: Of a graph break where a container has no item at the place that an arm reads. The text of the
#: exception may show the place, so it is left to eager execution.
NO_ITEM: Final = "no item at a data-dependent place"

#: Graph breaks that stand for an error of the program, as torch/_dynamo names them: a variable that
#: is not bound, an ``assert`` of what is known to be false.
_CERTAIN: Final = (
    "Attempted to read undefined local variable",
    "Data-dependent assertion failed (cannot compile partial graph)",
)
#: Those that most likely do. A cell is known to be empty in the trace only: a record would find in
#: it what came later. An AssertionError is hardly made for anything but to be raised.
_FAILED: Final = (
    f"bcmend: {NO_ITEM}",
    "TypeError when making fake tensor call",
    "Read uninitialized cell",
    "assert with non-string message",
)

_RAISE: Final = compat.InstructionTranslatorBase.RAISE_VARARGS.__code__
_FAKE: Final = compat.get_fake_value.__code__
#: Makes an exception. Like an AssertionError, it is hardly made for anything but to be raised.
_MAKE: Final = compat.UserDefinedExceptionClassVariable.call_function.__code__
_POLYFILLS: Final = os.path.dirname(compat.POLYFILLS_FILE)


class Raised(Enum):
    """Whether eager execution raises where tracing an arm has failed."""

    CERTAIN = auto()
    LIKELY = auto()
    UNKNOWN = auto()


class BothRaise(Exception):
    """Both arms of a branch raise, and so does the arm that holds it; ``raised`` is how certain."""

    def __init__(self, raised: Raised, detail: str) -> None:
        super().__init__(detail)
        self.raised = raised


def whether_raised(error: Exception) -> Raised:
    """Return whether the traced code raises where ``error`` ended its trace."""
    if isinstance(error, BothRaise):
        return error.raised
    if isinstance(error, compat.ObservedException):
        return Raised.CERTAIN if _is_raised_by_the_program(error) else Raised.LIKELY
    if isinstance(error, compat.Unsupported):
        if error.gb_type in _CERTAIN:
            return Raised.CERTAIN
        return Raised.LIKELY if error.gb_type in _FAILED or is_being_made(error) else Raised.UNKNOWN
    if isinstance(error, compat.TorchDynamoException):
        return Raised.LIKELY if isinstance(error, compat.TorchRuntimeError) else Raised.UNKNOWN
    return Raised.UNKNOWN if _frame_of(error, _FAKE) is None else Raised.LIKELY


def words(error: Exception) -> str:
    """Return what has ended the trace of an arm, and in which line of the program."""
    first, *_ = str(error).strip().splitlines() or [""]
    text = f"{type(error).__name__}: {first}"
    stopped = frames.of_the_program_in(error)
    if not stopped:
        return text
    line = frames.line_of(stopped[-1])
    source = source_line(stopped[-1].f_code.co_filename, line)
    return f"{text}, at line {line}{f': `{source}`' * bool(source)}"


def _is_raised_by_the_program(error: Exception) -> bool:
    """Return whether a ``raise`` was traced, but for Dynamo's own models written in Python."""
    raising = _frame_of(error, _RAISE)
    file = "" if raising is None else str(raising.f_locals["self"].f_code.co_filename)
    return raising is not None and not file.startswith(_POLYFILLS)


def _frame_of(error: Exception, code: CodeType) -> FrameType | None:
    """Return the outermost frame with ``code`` that ``error`` has gone through."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return next((frame for frame in frames if frame.f_code is code), None)


def is_being_made(error: Exception) -> bool:
    """Return whether the trace ended where the program makes an exception of its own class."""
    return _frame_of(error, _MAKE) is not None


def exception_name(error: Exception) -> str:
    """Return the name of the exception that the traced code raises."""
    making = _frame_of(error, _MAKE)
    if making is not None:
        return str(making.f_locals["self"].value.__name__)
    known = compat.observed_exception_map.items()
    names = (raised.__name__ for raised, observed in known if observed is type(error))
    return next(names, type(error).__name__)
