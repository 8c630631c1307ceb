"""What it means that an arm cannot be traced: that it raises for certain, perhaps, or who knows.

Reads the exception that ended a trace. That the program itself raises is certain where Dynamo
traced a ``raise`` statement, or a read of a variable that is not bound. Where an operation failed
on fake tensors, or Dynamo's model of Python raised, eager execution most likely raises as well; a
model may be wrong, though, so that has to be tried before it is relied upon.
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import Final

from torch._dynamo import exc, polyfills, utils
from torch._dynamo.symbolic_convert import InstructionTranslatorBase

__all__ = ["CERTAIN", "LIKELY", "UNKNOWN", "exception_name", "whether_raised"]

CERTAIN: Final = "certain"
LIKELY: Final = "likely"
UNKNOWN: Final = "unknown"

#: Graph breaks that stand for an error of the program, as torch/_dynamo names them: a variable that
#: is not bound, an ``assert`` of what is known to be false.
_CERTAIN: Final = frozenset(
    [
        "Attempted to read undefined local variable",
        "Data-dependent assertion failed (cannot compile partial graph)",
    ]
)
#: Those that most likely do. A cell is known to be empty in the trace only: a record would find in
#: it what came later. An AssertionError is hardly made for anything but to be raised.
_FAILED: Final = frozenset(
    [
        "TypeError when making fake tensor call",
        "Read uninitialized cell",
        "assert with non-string message",
    ]
)

_RAISE: Final = InstructionTranslatorBase.RAISE_VARARGS.__code__
_FAKE: Final = utils.get_fake_value.__code__
_POLYFILLS: Final = os.path.dirname(polyfills.__file__)


def whether_raised(error: Exception) -> str:
    """Say whether the traced code raises where ``error`` ended its trace."""
    if isinstance(error, exc.ObservedException):
        return CERTAIN if _is_raised_by_the_program(error.__traceback__) else LIKELY
    if isinstance(error, exc.Unsupported):
        if error.gb_type in _CERTAIN:
            return CERTAIN
        return LIKELY if error.gb_type in _FAILED else UNKNOWN
    if isinstance(error, exc.TorchRuntimeError):
        return LIKELY
    if isinstance(error, exc.TorchDynamoException):
        return UNKNOWN
    return LIKELY if _runs(error.__traceback__, _FAKE) else UNKNOWN


def _is_raised_by_the_program(traceback: TracebackType | None) -> bool:
    """Whether a ``raise`` was traced, other than in Dynamo's own models written in Python."""
    while traceback is not None:
        frame = traceback.tb_frame
        if frame.f_code is _RAISE:
            raising = frame.f_locals["self"].f_code.co_filename
            return not str(raising).startswith(_POLYFILLS)
        traceback = traceback.tb_next
    return False


def _runs(traceback: TracebackType | None, code: object) -> bool:
    while traceback is not None:
        if traceback.tb_frame.f_code is code:
            return True
        traceback = traceback.tb_next
    return False


def exception_name(error: Exception) -> str:
    """Return the name of the exception that the traced code raises."""
    known = exc.observed_exception_map.items()
    names = (raised.__name__ for raised, observed in known if observed is type(error))
    return next(names, type(error).__name__)
