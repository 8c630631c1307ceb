"""Dynamo's callback for the calls of a boundary: bodies are captured whole, all else as ever.

A body that compiles only in pieces must not run: the boundary waits for the error, changes
something and calls again. So every graph break is an error while a body is being compiled, unless
it has turned out that its graph has to break. Dynamo's switch for that is one for the whole
process, and is therefore thrown only while a body is compiled, under Dynamo's own lock.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any, Final

from bcmend.dynamo import compat, frames, hooks, plain_python
from bcmend.dynamo.models import translators
from bcmend.dynamo.slots import Slot
from bcmend.knowledge.interruptions import is_interruption
from bcmend.tracing.entry import error_barrier
from bcmend.tracing.search import epochs, strict
from bcmend.tracing.sites import body_states, site_table, suspects


class Uncompared(BaseException):
    """A body would be compiled for a call that is to be compared with eager execution before.

    No ``Exception``, since it is no failure of the body, of which nothing has run.
    """


class _ToCompare(threading.local):
    """The body of which this thread is to compile no variant yet."""

    code: CodeType | None = None


_TO_COMPARE: Final = _ToCompare()


@contextmanager
def not_compiling(code: CodeType | None) -> Iterator[None]:
    """Raise ``Uncompared`` in a block where ``code`` would be compiled; of ``None`` nothing."""
    before, _TO_COMPARE.code = _TO_COMPARE.code, code
    try:
        yield
    finally:
        _TO_COMPARE.code = before


class _Failed(threading.local):
    """What a body that was to be one graph has failed with, before Python ran it in this thread."""

    error: Exception | None = None


_FAILED: Final = _Failed()


def forget_failure() -> None:
    """Begin a call of which nothing has failed."""
    _FAILED.error = None


def require_one_graph() -> None:
    """Raise what a call that was to be one graph has failed with, while Python ran it nevertheless.

    Where the program fails so in eager execution, it has raised an exception of its own before.
    """
    error, _FAILED.error = _FAILED.error, None
    if error is not None:
        raise error


#: What Dynamo lets pass of what fails inside of torch, and makes no error of its own.
AS_THEY_ARE: Final = (IndexError, AssertionError)

#: The callback made of one of Dynamo's.
_OF_BODIES: Final[Slot[Any]] = Slot(lambda: None, rolls_back=False)


def of_bodies(callback: Any) -> Any:
    """Return what Dynamo is to call instead of ``callback``, always the same for the same one."""
    if not callable(callback):
        return callback
    known = _OF_BODIES.of(callback)
    if known is None:
        known = _OfBodies(callback)
        _OF_BODIES.put(callback, known)
        _OF_BODIES.put(known, known)  # a boundary within another
    return known


class _OfBodies(translators.FrameCompiler):
    """What Dynamo calls to compile a frame of a body, or a piece of one."""

    def __call__(self, frame: Any, *others: Any) -> Any:
        if _TO_COMPARE.code is frame.f_code:
            raise Uncompared
        compiler = self.compiler
        epochs.end()
        translators.store_nothing(compiler)
        if not translators.wants_one_graph(compiler):
            body_states.require_room(frame.f_code)
        if not frames.is_left_alone(frame.f_code):
            try:
                with hooks.active():
                    if body_states.may_break(frame.f_code):
                        return _a_piece(compiler, frame, *others)
                    return frames.captured_whole(compiler, frame, *others)
            except compat.InternalTorchDynamoError as error:
                if not body_states.may_break(frame.f_code) or is_interruption(error):
                    raise  # the boundary acts on it
                if strict.IS_ON or not error_barrier.stay_out(frame.f_code, error):
                    raise
        return compiler(frame, *others)


def _a_piece(compiler: Any, *given: Any) -> Any:
    """Compile what may break; have Python run a piece that fails on fake tensors.

    Dynamo would raise the failure, and what the piece does before it would be lost. Python also
    runs, from then on, a piece in which torch asks for something data-dependent.
    """
    site_table.clear_recent()
    try:
        return _until_the_back_end_takes_it(compiler, *given)
    except (compat.TorchRuntimeError, *AS_THEY_ARE) as error:
        if translators.wants_one_graph(compiler):
            _FAILED.error = error
        return compat.ConvertFrameReturn(apply_to_code=False, skip_reason="bcmend: it fails")
    except compat.GuardOnDataDependentSymNode:
        return compat.ConvertFrameReturn(skip_reason="bcmend: a size is known at run time only")


def _until_the_back_end_takes_it(compiler: Any, *given: Any) -> Any:
    """Compile, without those sites for which the back end fails."""
    while True:
        try:
            return compiler(*given)
        except compat.BackendCompilerFailed as error:
            if not suspects.withdraw_recent("not-captured", body_states.summary(error)):
                suspects.acquit()  # it fails without them, too
                raise


def is_of_a_compiler(error: Exception) -> bool:
    """Return whether an error comes out of a compilation, which Dynamo notes on it."""
    return getattr(error, "compile_id", None) is not None


plain_python.have_dynamo_skip(of_bodies, is_of_a_compiler)
