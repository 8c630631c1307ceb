"""One call of a patched function that Dynamo is asked to compile.

A patched function that runs as plain Python under a Dynamo callback is a boundary: it gives the
call a fresh buffer, has Dynamo compile the mended body, and delivers the records when the body is
done. Here is also what happens when the mended body does not compile: sites are found, withdrawn or
left to break the graph, and the call is tried again. Nothing of the body has run by then, since a
body that is tried again is always compiled whole.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, Final

from torch._C._dynamo.eval_frame import reset_code, set_eval_frame
from torch._dynamo import exc, trace_rules
from torch._dynamo.eval_frame import skip_code
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from bcmend.runtime import (
    backoff,
    callers,
    capture,
    choices,
    random_numbers,
    second_runs,
    side_exits,
    sites,
)
from bcmend.runtime.emission import emitted
from bcmend.runtime.records import Buffer, deliver

__all__ = ["run"]


class _Call(threading.local):
    """The buffer of the boundary that this thread is in."""

    buffer: Buffer | None = None


_CALL = _Call()

#: What comes out of a compiler that has to capture a frame whole. Where graphs may break, Dynamo
#: itself takes the second for a reason to break.
_FAILURES: Final = (exc.TorchDynamoException, GuardOnDataDependentSymNode)


def run(body: FunctionType, arguments: tuple[Any, ...]) -> Any:
    """Call ``body(*arguments, buffer)`` for Dynamo to compile, then deliver its records."""
    callback = set_eval_frame(None)  # nothing but the body is to be compiled
    try:
        return _run(body, arguments, callback)
    finally:
        set_eval_frame(callback)


def _run(body: FunctionType, arguments: tuple[Any, ...], callback: Any) -> Any:
    outer = _CALL.buffer
    if outer is None:
        sites.begin_call()
    if outer:
        deliver(outer)  # what an enclosing frame recorded before its graph broke comes first
    buffer: Buffer = []
    _CALL.buffer = buffer
    failure = None
    result = None
    written = emitted()
    try:
        result = _compiled(body, arguments, buffer, callback)
    except BaseException as error:
        failure = error
    finally:
        _CALL.buffer = outer
    try:
        if buffer:
            _deliver_before(failure, buffer)
        if failure is None:
            return result
        if isinstance(failure, side_exits.SideExit):
            return _behind_a_side_exit(failure, body, arguments)
        if emitted() == written and _can_be_repeated(body, failure):
            random_numbers.put_back()
            result = second_runs.plainly(callers.call_as_entered, body, (*arguments, []))
            _note_what_does_not_hold(_latest(body))
            return result
        raise failure
    finally:
        failure = None  # its traceback holds this frame, and that the arguments


def _note_what_does_not_hold(state: backoff.BodyState) -> None:
    """Take no more numbers where the graph alone has failed: it asserts too much of one.

    Where one graph was asked for, that stays so, and such calls are made in plain Python.
    """
    if state.leave_numbers():
        reset_code(state.code)


def _deliver_before(failure: BaseException | None, buffer: Buffer) -> None:
    """Deliver what the call has recorded before it failed, if it did."""
    try:
        deliver(buffer)
    except BaseException as error:
        if failure is not None:
            error.add_note(f"The call has failed too: {failure!r}")
        raise


def _latest(body: FunctionType) -> backoff.BodyState:
    """Return the state of the code that is compiled for a body by now."""
    state = backoff.state_of(body.__code__, is_body=True)
    while state.newer is not None:
        state = backoff.state_of(state.newer, is_body=True)
    return state


def _can_be_repeated(body: FunctionType, failure: BaseException) -> bool:
    """Whether the call can be made again, since it failed inside its one graph without a trace.

    The records of that graph are lost: they are replayed after it. But so are all its effects on
    Python objects, so the original code can be run instead, and does what eager does: it prints
    what comes before the failure, or fails earlier, at a check.
    """
    state = _latest(body)
    return (
        isinstance(failure, Exception)
        and not isinstance(failure, exc.TorchDynamoException)
        and not state.may_break
        and bool(state.repeatable)
    )


def _behind_a_side_exit(
    taken: side_exits.SideExit, body: FunctionType, arguments: tuple[Any, ...]
) -> Any:
    """Make the call in plain Python, for which its graph has left no trace."""
    result = second_runs.plainly(callers.call_as_entered, body, (*arguments, []))
    side_exits.came_back(taken, _latest(body).code)
    return result


def _compiled(body: FunctionType, arguments: tuple[Any, ...], buffer: Buffer, callback: Any) -> Any:
    """Call the body; where it does not compile, mend more, or less, and call again."""
    state = backoff.state_of(body.__code__, is_body=True)
    while True:
        whole = not state.may_break
        generation = state.generation
        sites.clear_recent()
        random_numbers.forget()
        set_eval_frame(capture.of_bodies(callback))
        try:
            result = body(*arguments, buffer)
            return choices.resolve(result) if state.has_choices else result
        except (*_FAILURES, backoff.CodeSplit, IndexError) as error:
            set_eval_frame(None)
            if isinstance(error, IndexError) and not capture.is_of_a_compiler(error):
                raise
            if not whole or not backoff.try_again(state, generation, error):
                raise
            buffer.clear()
            body = state.replacement(body)
            state = backoff.state_of(body.__code__, is_body=True)
        finally:
            set_eval_frame(None)


def install(
    on_stop: Callable[[list[backoff.Stop]], bool],
    on_read: Callable[[list[backoff.Stop], sites.LiveSite | None], bool],
    on_turns: Callable[[list[backoff.Stop]], bool],
) -> None:
    """Say whom to ask about unmended code."""
    backoff.on_stop, backoff.on_read, backoff.on_turns = on_stop, on_read, on_turns


def _skip(function: Any) -> None:
    code: CodeType = function.__code__
    skip_code(code)


trace_rules.add("bcmend")
for _function in (
    run,
    _run,
    _compiled,
    _deliver_before,
    _latest,
    _can_be_repeated,
    _note_what_does_not_hold,
    _behind_a_side_exit,
    _skip,
    install,
):
    _skip(_function)
