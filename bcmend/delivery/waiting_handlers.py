"""Handlers that wait, inside of a patched call, for what a frame that is called from it raises.

Such a frame is compiled by itself: between it and the outermost call are frames that Python runs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

import torch

from bcmend.bytecode.decode import decode
from bcmend.bytecode.exception_ranges import range_of_each
from bcmend.bytecode.instructions import DecodeError, UnknownOpcode, decoded_index
from bcmend.bytecode.raised_again import may_keep
from bcmend.delivery.callers import is_of_a_boundary
from bcmend.knowledge.own_code import FILES_BEGIN
from bcmend.weak_tables import ByIdentity

#: The files of code whose handlers raise again what the program raises.
_NOT_OF_THE_PROGRAM: Final = (FILES_BEGIN, f"{Path(torch.__file__).parent}/", "<frozen ")

#: By code, from which offsets on an exception may be kept, and whether it may.
_KEPT: Final[ByIdentity[CodeType, list[tuple[int, bool]]]] = ByIdentity()


def is_one_inside() -> bool:
    """Return whether a frame around the one that asks may catch an exception of it.

    Only those count that the outermost patched call has called.
    """
    around: list[FrameType] = []
    frame: FrameType | None = sys._getframe(1)
    inside = 0
    while frame is not None:
        if is_of_a_boundary(frame.f_code):
            inside = len(around)
            frame = frame.f_back  # the shell, which raises again what comes out of the boundary
        else:
            around.append(frame)
        frame = None if frame is None else frame.f_back
    return any(map(_may_catch, around[:inside]))


def _may_catch(frame: FrameType) -> bool:
    code = frame.f_code
    if not code.co_exceptiontable or code.co_filename.startswith(_NOT_OF_THE_PROGRAM):
        return False
    kept = _KEPT.setdefault(code, lambda: _read(code))
    before = [is_kept for offset, is_kept in kept if offset <= frame.f_lasti]
    return not before or before[-1]


def _read(code: CodeType) -> list[tuple[int, bool]]:
    """Return offsets of instructions, and whether what they raise may be kept; empty if unknown.

    The exit of any ``with`` may keep it: which context manager that is, a frame does not say.
    """
    try:
        function = decode(code)
    except (DecodeError, UnknownOpcode):
        return []
    instructions = function.instructions
    ranges = range_of_each(function.tries, len(instructions))
    names = [each.op for each in instructions]

    def handler_over(index: int) -> int | None:
        entry = ranges[index]
        return None if entry is None else decoded_index(entry.handler)

    return [
        (each.offset, may_keep(names, handler_over(index), handler_over, in_with=True))
        for index, each in enumerate(instructions)
    ]
