"""Strict mode: an error inside bcmend is raised, and is no reason to refuse a site.

``BCMEND_STRICT=1`` in the environment switches it on, as the tests do.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from bcmend.knowledge.interruptions import is_interruption
from bcmend.knowledge.own_code import FILES_BEGIN

IS_ON: Final = os.environ.get("BCMEND_STRICT", "") not in ("", "0")


class InternalError(BaseException):
    """An error inside bcmend, in strict mode.

    No ``Exception``: torch, and bcmend itself, take those for failures of what is traced.
    """


def require_foreign(error: BaseException, *callers: Callable[..., Any]) -> None:
    """In strict mode, raise ``InternalError`` if ``error`` was raised by code of bcmend's.

    What a handler of a signal has raised says nothing of either, and goes on in any mode.

    ``callers`` are functions of bcmend's that do nothing but call what is traced: what a function
    written in C raises, which has no frame of its own, seems to be raised by its caller.
    """
    if is_interruption(error):
        raise error
    if IS_ON and is_own(error, *callers):
        raise InternalError(f"{type(error).__name__}: {error}") from error


def is_own(error: BaseException, *callers: Callable[..., Any]) -> bool:
    """Return whether ``error`` was raised by code of bcmend's: in its innermost frame.

    ``callers`` are as for ``require_foreign``.
    """
    entry: TracebackType | None = error.__traceback__
    while entry is not None and entry.tb_next is not None:
        entry = entry.tb_next
    if entry is None or entry.tb_frame.f_code in [each.__code__ for each in callers]:
        return False
    return entry.tb_frame.f_code.co_filename.startswith(FILES_BEGIN)
