"""Keeps the frames of a boundary out of the tracebacks of what the program raises.

A shell calls the boundary, which calls the body or a record. To the user these are one function.
"""

from __future__ import annotations

from types import TracebackType

from bcmend.bytecode.names_used import origin_of
from bcmend.knowledge.own_code import FILES_BEGIN


def leave_out(error: BaseException) -> None:
    """Drop the frames of bcmend that ``error`` went through on its way to a shell.

    The shell's own entry goes too if the next one is of the body or the original code.
    """
    shell = error.__traceback__
    if shell is None or getattr(error, "first_useful_frame", None) is not None:
        return  # torch looks for a frame of Dynamo's in the traceback of an error of a back end
    entry = _behind_own(shell.tb_next)
    if entry is None:
        return  # it is an error of bcmend's, or of the compiler's
    if origin_of(entry.tb_frame.f_code) == origin_of(shell.tb_frame.f_code):
        error.__traceback__ = entry
    else:
        shell.tb_next = entry


def _behind_own(entry: TracebackType | None) -> TracebackType | None:
    """Return what comes behind the last frame of bcmend, which a record inside a graph has too."""
    found = entry
    while entry is not None:
        if entry.tb_frame.f_code.co_filename.startswith(FILES_BEGIN):
            found = entry.tb_next
        entry = entry.tb_next
    return found
