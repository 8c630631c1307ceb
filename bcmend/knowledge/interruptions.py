"""Exceptions of handlers of signals, which are raised wherever Python happens to be."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from functools import partial
from types import CodeType, FunctionType, MethodType, TracebackType


def is_interruption(error: BaseException) -> bool:
    """Return whether a handler of a signal has raised an exception, or what it was made of.

    It says nothing about the code that was interrupted, and goes to whoever set the handler. Dynamo
    puts exceptions into others, with or without naming them as the cause.
    """
    at: BaseException | None = error
    while at is not None:
        entry = at.__traceback__
        if entry is not None and entry.tb_next is not None:
            handlers = set(map(code_run_first, _handlers()))
            if any(each.tb_frame.f_code in handlers for each in entries(entry)):
                return True
        at = at.__cause__ or at.__context__
    return False


def entries(traceback: TracebackType | None) -> Iterator[TracebackType]:
    """Yield the entries of a traceback, outermost first."""
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def code_run_first(function: object) -> CodeType | None:
    """Return the code that a call of ``function`` runs first; ``None`` if that is no Python."""
    while isinstance(function, partial):
        function = function.func
    if isinstance(function, MethodType):
        function = function.__func__
    if not isinstance(function, FunctionType):
        function = getattr(type(function), "__call__", None)  # noqa: B004
    return getattr(function, "__code__", None)


def _handlers() -> Iterator[object]:
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if callable(handler):
            yield handler
