"""What it means that an arm cannot be traced: that it raises for certain, perhaps, or who knows.

Reads the exception that ended a trace. That the program itself raises is certain where Dynamo
traced a ``raise`` statement, or a read of a variable that is not bound. Where an operation failed
on fake tensors, or Dynamo's model of Python raised, eager execution most likely raises as well, and
where Dynamo cannot follow the making of an exception, that exception; a model may be wrong, though,
so that has to be tried before it is relied upon.
"""

from __future__ import annotations

import os
from types import CodeType, FrameType, TracebackType
from typing import Final

from torch._dynamo import exc, polyfills, utils
from torch._dynamo.symbolic_convert import InstructionTranslatorBase
from torch._dynamo.variables.user_defined import UserDefinedExceptionClassVariable

__all__ = [
    "CERTAIN",
    "LIKELY",
    "UNKNOWN",
    "BothRaise",
    "exception_name",
    "is_being_made",
    "whether_raised",
]

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
#: Makes an exception. Like an AssertionError, it is hardly made for anything but to be raised.
_MAKE: Final = UserDefinedExceptionClassVariable.call_function.__code__
_POLYFILLS: Final = os.path.dirname(polyfills.__file__)


class BothRaise(Exception):
    """Both sides of a branch raise, and so does the arm that holds it.

    ``raised`` says how certain that is.
    """

    def __init__(self, raised: str, detail: str) -> None:
        super().__init__(detail)
        self.raised = raised


def whether_raised(error: Exception) -> str:
    """Say whether the traced code raises where ``error`` ended its trace."""
    if isinstance(error, BothRaise):
        return error.raised
    if isinstance(error, exc.ObservedException):
        return CERTAIN if _is_raised_by_the_program(error.__traceback__) else LIKELY
    if isinstance(error, exc.Unsupported):
        if error.gb_type in _CERTAIN:
            return CERTAIN
        is_likely = error.gb_type in _FAILED or _frame_of(error, _MAKE) is not None
        return LIKELY if is_likely else UNKNOWN
    if isinstance(error, exc.TorchRuntimeError):
        return LIKELY
    if isinstance(error, exc.TorchDynamoException):
        return UNKNOWN
    return UNKNOWN if _frame_of(error, _FAKE) is None else LIKELY


def _is_raised_by_the_program(traceback: TracebackType | None) -> bool:
    """Whether a ``raise`` was traced, other than in Dynamo's own models written in Python."""
    while traceback is not None:
        frame = traceback.tb_frame
        if frame.f_code is _RAISE:
            raising = frame.f_locals["self"].f_code.co_filename
            return not str(raising).startswith(_POLYFILLS)
        traceback = traceback.tb_next
    return False


def _frame_of(error: Exception, code: CodeType) -> FrameType | None:
    """Return the outermost frame with ``code`` that ``error`` has gone through."""
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code is code:
            return traceback.tb_frame
        traceback = traceback.tb_next
    return None


def is_being_made(error: Exception) -> bool:
    """Whether the trace ended where the program makes an exception of a class of its own."""
    return _frame_of(error, _MAKE) is not None


def exception_name(error: Exception) -> str:
    """Return the name of the exception that the traced code raises."""
    making = _frame_of(error, _MAKE)
    if making is not None:
        return str(making.f_locals["self"].value.__name__)
    known = exc.observed_exception_map.items()
    names = (raised.__name__ for raised, observed in known if observed is type(error))
    return next(names, type(error).__name__)
