"""One call of a patched function that Dynamo is asked to compile.

A patched function that runs as plain Python under a Dynamo callback is a boundary: it gives the
call a fresh buffer, has Dynamo compile the mended body, and delivers the records when the body is
done. Where the body does not compile, sites are found, withdrawn or left to break the graph, and
the call is tried again: nothing of it has run, since such a body is always compiled whole.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import CodeType, FunctionType, TracebackType
from typing import Any, Final, NamedTuple

from bcmend.bytecode.decode import unfused
from bcmend.bytecode.names_used import origin_of
from bcmend.bytecode.opcodes import CALLS, DELETES, INTRINSICS, LOCAL_DELETES, LOCAL_STORES, STORES
from bcmend.delivery import callers, codec, waiting_handlers
from bcmend.delivery.records import Buffer, deliver
from bcmend.dynamo import compat, frames, plain_python
from bcmend.dynamo.models import translators
from bcmend.knowledge.interruptions import code_run_first, entries, is_interruption
from bcmend.tracing.deopt import (
    canaries,
    graph_failure,
    raised_errors,
    rerun_policy,
    side_exits,
)
from bcmend.tracing.effects import random_draws
from bcmend.tracing.entry import capture, still_breaking
from bcmend.tracing.gradients import input_leaves
from bcmend.tracing.numbers import ahead
from bcmend.tracing.search import assumptions, budget
from bcmend.tracing.search.calls import CURRENT
from bcmend.tracing.search.epochs import EPOCHS
from bcmend.tracing.search.falsified import Rewritten
from bcmend.tracing.sites import body_states, site_table, suspects
from bcmend.tracing.sites.live_state import Clean
from bcmend.tracing.sites.session import SESSION

#: What comes out of a compiler that has to capture a frame whole. Where graphs may break, Dynamo
#: itself takes the second for a reason to break.
_FAILURES: Final = (compat.TorchDynamoException, compat.GuardOnDataDependentSymNode)


def run(body: FunctionType, arguments: tuple[Any, ...]) -> Any:
    """Call ``body(*arguments, buffer)`` for Dynamo to compile, then deliver its records."""
    callback = compat.set_eval_frame(None)  # nothing but the body is to be compiled
    try:
        return _run(body, arguments, callback, sys._getframe(1).f_code)
    finally:
        compat.set_eval_frame(callback)


def run_in_place(body: FunctionType, arguments: tuple[Any, ...]) -> Any:
    """Do as ``run`` in a frame that Dynamo runs in place of one that it was to compile.

    Where one graph was asked for, torch sets no callback while such a frame runs.
    """
    callback, CURRENT.callback = CURRENT.callback, None
    outer = compat.set_eval_frame(None)
    try:
        return _run(body, arguments, callback, sys._getframe(1).f_code)
    finally:
        compat.set_eval_frame(outer)


def _run(body: FunctionType, arguments: tuple[Any, ...], callback: Any, caller: CodeType) -> Any:
    """Make the call, compared with eager execution before where a variant is compiled for it."""
    state = SESSION.bodies.get(body.__code__)
    if state is not None and state.clean is not None and CURRENT.buffer is None:
        clean = state.clean
        is_clean = clean.epoch == EPOCHS.number == CURRENT.epoch
        compiler = clean.compiler() if is_clean and clean.callback() is callback else None
        if compiler is not None:
            return _repeated(body, arguments, callback, state, clean, compiler)
    frames.compile_as(body.__code__, caller)
    if SESSION.verifier is None:
        return _made(body, arguments, callback)
    if _is_compared(body) and CURRENT.buffer is None:
        try:
            with capture.not_compiling(_latest(body)):
                return _made(body, arguments, callback)
        except capture.Uncompared:
            pass  # what the calls below raise has it in no context
        if not _may_be_mended(body, arguments, callback):
            return _plainly(body, arguments)
    with capture.not_compiling(None):
        return _made(body, arguments, callback)


def _is_compared(body: FunctionType) -> bool:
    """Return whether calls for which a variant is compiled are compared with eager execution."""
    if SESSION.verifier is None:
        return False
    return getattr(frames.mark_of(body.__code__), "verify", "never") == "first"


class _Attempt(NamedTuple):
    """An attempt at a call.

    Attributes:
        generation: of the state of the body before it.
        numbers: what was computed in front of it.
        outcome: calls the body: returns what it returns, or raises what it raises.
    """

    generation: int
    numbers: tuple[Any, ...]
    outcome: Callable[[], Any]


@dataclass(slots=True)
class _Tried:
    """An attempt that was made, without clearing up anything in front of it.

    Attributes:
        clean: why that was right.
        generation: as of any attempt; ``numbers`` likewise.
        depth: of transforms in force before it.
        buffer: its records.
        result: what the body has returned, unless it has failed.
        failure: with what.
    """

    clean: Clean
    generation: int
    numbers: tuple[Any, ...]
    depth: int
    buffer: Buffer
    result: Any
    failure: BaseException | None

    def outcome(self) -> Any:
        """Return what the body has returned, or raise what it has failed with; once."""
        failure, result = self.failure, self.result
        self.failure = self.result = None
        try:
            if failure is not None:
                raise failure
            return result
        finally:
            del failure  # its traceback holds this frame


def _repeated(
    body: FunctionType,
    arguments: tuple[Any, ...],
    callback: Any,
    state: body_states.BodyState,
    clean: Clean,
    compiler: Any,
) -> Any:
    """Make a call behind an equal one that had nothing to clear up, and has traced nothing.

    Each later call costs what is done here, which is no more than has to be.
    """
    buffer: Buffer = []
    generation, depth = state.generation, plain_python.depth_of_transforms()
    CURRENT.buffer, CURRENT.states, CURRENT.leaves = buffer, None, ()
    numbers: tuple[Any, ...] = ()
    result = failure = None
    try:
        if state.slices:
            numbers = ahead.given(state, body, arguments)
        given = (*arguments, buffer, numbers)
        CURRENT.variables = body, given
        compat.set_eval_frame(compiler)
        result = body(*given)
        compat.set_eval_frame(None)  # which would look at each frame behind the body
        if state.has_choices:
            result = codec.decode(result)
    except BaseException as error:
        failure = error
    finally:
        compat.set_eval_frame(None)
        CURRENT.buffer = CURRENT.variables = None
    if failure is None and clean.epoch == EPOCHS.number:
        if buffer:
            deliver(buffer)
        return result
    tried = _Tried(clean, generation, numbers, depth, buffer, result, failure)
    result = failure = None  # the traceback holds this frame
    return _made(body, arguments, callback, tried)


def _is_still(clean: Clean | None) -> bool:
    """Return whether a call began without anything to clear up, and has traced nothing."""
    return clean is not None and clean.epoch == EPOCHS.number


def _begin_call(body: FunctionType, outer: Buffer | None) -> None:
    """Begin a call in another, which has a buffer, or the outermost one of this thread."""
    if outer is None:
        budget.forget()
        assumptions.begin_call()
        return
    _defer_nothing_if_caught(_latest(body))
    if outer:
        deliver(outer)  # what an enclosing frame recorded before its graph broke comes first


def _defer_nothing_if_caught(code: CodeType) -> None:
    """Have a body, called from another call, raise at once what a frame in between may catch."""
    state = body_states.state_of(code, is_body=True)
    if state.deferring and waiting_handlers.is_one_inside():
        for each in state.defer_nothing():
            frames.forget(each, "bcmend defers no exception that may be caught")


def _leave_clean(body: FunctionType, callback: Any, epoch: int, outer: Buffer | None) -> None:
    """Note that a call that began in an epoch has traced nothing, if it is no call in another."""
    is_still = outer is None and EPOCHS.number == epoch and callable(callback)
    if is_still and not _is_compared(body):
        state = body_states.state_of(body.__code__, is_body=True)
        compiler = weakref.ref(capture.of_bodies(callback))
        state.clean = Clean(epoch, weakref.ref(callback), compiler, not state.may_break)
        CURRENT.epoch = epoch


def _made(
    body: FunctionType,
    arguments: tuple[Any, ...],
    callback: Any,
    tried: _Tried | None = None,
) -> Any:
    """Make the call, or go on with one that was ``tried``."""
    outer, clean = CURRENT.buffer, None if tried is None else tried.clean
    epoch = EPOCHS.number if clean is None else clean.epoch
    if tried is None:
        _begin_call(body, outer)
    buffer: Buffer = [] if tried is None else tried.buffer
    depth = plain_python.depth_of_transforms() if tried is None else tried.depth
    CURRENT.buffer = buffer
    failure = result = None
    try:
        result = _compiled(body, arguments, buffer, callback, tried)
        if not _is_still(clean):
            suspects.convict()
            _leave_clean(body, callback, epoch, outer)
    except BaseException as error:
        failure = error
    finally:
        CURRENT.buffer = outer
        if outer is None and not _is_still(clean):
            budget.forget()
    try:
        if buffer:
            _deliver_before(failure, buffer)
        if failure is None:
            return result
        if isinstance(failure, (canaries.NewSide, side_exits.SideExit)):
            input_leaves.take_back()  # the graph has had no effects
            return _left(body, arguments, callback, failure)
        if _can_be_repeated(body, failure):
            plain_python.leave_transforms(depth)
            random_draws.restore_states()
            input_leaves.take_back()
            result = _plainly(body, arguments)
            _note_what_does_not_hold(_latest(body))
            return result
        raise failure
    finally:
        failure = None  # its traceback holds this frame, and that the arguments


def _left(
    body: FunctionType,
    arguments: tuple[Any, ...],
    callback: Any,
    why: canaries.NewSide | side_exits.SideExit,
) -> Any:
    """Make a call of which the graph was given up in plain Python."""
    code = _latest(body)
    state = body_states.state_of(code, is_body=True)
    if isinstance(why, canaries.NewSide):
        _note_captured(state, None)
        keys = tuple(dict.fromkeys(side.key for side in why.sides))
        _may_be_mended(body, arguments, callback, keys)
        canaries.end(why, code)
        return _plainly(body, arguments)
    result = _plainly(body, arguments)
    state.sides.note_captured()
    side_exits.came_back(why, _latest(body))
    return result


def _may_be_mended(
    body: FunctionType, arguments: tuple[Any, ...], callback: Any, new: tuple[str, ...] = ()
) -> bool:
    """Return whether a call, mended, is not known to differ from eager execution.

    ``new`` are the sites of which it takes new sides; without any the code is compiled for it.
    """
    if SESSION.verifier is None:
        return True
    mended = partial(_made, body, arguments, callback)
    plain = partial(_plainly, body, arguments)
    return SESSION.verifier(_latest(body), mended, plain, arguments, new)


def _plainly(body: FunctionType, arguments: tuple[Any, ...]) -> Any:
    """Make the call in plain Python, with a buffer that nobody reads."""
    return plain_python.run(callers.call_as_entered, body, (*arguments, [], ()))


def _note_what_does_not_hold(code: CodeType) -> None:
    """Take no more numbers where the graph alone has failed: it asserts too much of one.

    Where one graph was asked for, such calls go on being made in plain Python.
    """
    if rerun_policy.may_be_computed_again():
        return
    if body_states.state_of(code, is_body=True).leave_numbers():
        frames.forget(code, "bcmend takes no more numbers out of tensors")


def _deliver_before(failure: BaseException | None, buffer: Buffer) -> None:
    try:
        deliver(buffer)
    except BaseException as error:
        if failure is not None:
            error.add_note(f"The call has failed too: {failure!r}")
        raise


def _latest(body: FunctionType) -> CodeType:
    """Return the code that is compiled for a body now."""
    code = body.__code__
    while (newer := body_states.state_of(code, is_body=True).newer) is not None:
        code = newer
    return code


def _can_be_repeated(body: FunctionType, failure: BaseException) -> bool:
    """Return whether the call can be made again, since an operation of its one graph has failed.

    The records of that graph are lost, and so are all its effects on Python objects: they would
    have been replayed after it. So the original code does what eager execution does.
    """
    state = body_states.state_of(_latest(body), is_body=True)
    return not state.may_break and _is_of_the_graph(body, failure, state.repeatable)


def _is_of_the_graph(body: FunctionType, failure: BaseException, latest: bool | None) -> bool:
    """Return whether an operation is known to have failed in a graph that can run again.

    ``latest`` says whether the graph of the latest trace can.

    The first of the effects that are replayed behind the graph counts as one: it cannot be made,
    and no other has been.
    """
    entry = _entry_of(body, failure)
    if entry is None:
        return False
    frame = entry.tb_frame
    names = [name for name in frame.f_code.co_names if name.startswith("__compiled_fn")]
    graphs = [frame.f_globals.get(name) for name in names]
    if not all(graph_failure.is_repeatable(graph, latest) for graph in graphs):
        return False
    if entry.tb_next is None:
        is_first = _is_first_behind_the_graph(frame.f_code, entry.tb_lasti)
        return is_first and isinstance(failure, Exception) and bool(failure.args)
    called = [graph for graph in graphs if code_run_first(graph) is entry.tb_next.tb_frame.f_code]
    return bool(called) and raised_errors.is_of_an_operation(failure, entry.tb_next)


def _entry_of(body: FunctionType, failure: BaseException) -> TracebackType | None:
    """Return where a failure has passed through a body that runs; ``None`` if it has not begun."""
    place = origin_of(body.__code__)
    found = (
        each for each in entries(failure.__traceback__) if origin_of(each.tb_frame.f_code) == place
    )
    return next(found, None)


#: What may change an object, and not only locals.
_CHANGES: Final = CALLS | INTRINSICS | (STORES - LOCAL_STORES) | (DELETES - LOCAL_DELETES)


def _is_first_behind_the_graph(code: CodeType, offset: int) -> bool:
    """Return whether nothing but locals was changed between the graph and what failed."""
    between: list[str] | None = None
    for each in unfused(code):
        if between is None:
            if each.opname in LOCAL_STORES and each.argval.startswith("graph_out"):
                between = []
        elif each.offset >= offset:
            return _CHANGES.isdisjoint(between)
        else:
            between.append(each.opname)
    return False


def _compiled(
    body: FunctionType,
    arguments: tuple[Any, ...],
    buffer: Buffer,
    callback: Any,
    tried: _Tried | None,
) -> Any:
    """Make an attempt after the other; where the body does not compile, mend more, or less."""
    state = body_states.state_of(body.__code__, is_body=True)
    clean = None if tried is None else tried.clean
    while True:
        whole = _cleared(state) if clean is None else clean.is_whole
        attempt = tried or _attempt(body, state, arguments, buffer, callback)
        tried = None
        try:
            result = attempt.outcome()
            _note_captured(state, clean)
            return codec.decode(result) if state.has_choices else result
        except body_states.TooManyVariants:
            clean = None
            body, state = _replaced(body, body_states.without_numbers(body, state))
            continue
        except (*_FAILURES, Rewritten, *capture.AS_THEY_ARE) as error:
            if isinstance(error, capture.AS_THEY_ARE) and not capture.is_of_a_compiler(error):
                raise
            clean = None
            if not whole or _entry_of(body, error) is not None or is_interruption(error):
                still_breaking.add_to(error)
                raise
            budget.note_in_vain()
            is_raised = bool(attempt.numbers) and body_states.is_of_the_program(error)
            if is_raised:
                failure = body_states.summary(error)
            else:
                next_try = body_states.next_try(state, attempt.generation, error)
                if state.may_break and not translators.wants_one_graph(callback):
                    still_breaking.warn(error)
        buffer.clear()
        # What a call in plain Python raises has the error of the compiler in no context.
        if is_raised:
            result = _plainly(body, arguments)  # raises, or else torch was wrong about it
            body_states.let_break(state, failure)
            frames.count_as_compiled()
            return result
        if next_try is body_states.Next.PLAINLY:
            frames.count_as_compiled()
            return _plainly(body, arguments)
        before = state
        body, state = _replaced(body, state.replacement(body))
        state.take_numbers_of(before)


def _attempt(
    body: FunctionType,
    state: body_states.BodyState,
    arguments: tuple[Any, ...],
    buffer: Buffer,
    callback: Any,
) -> _Attempt:
    """Return an attempt, for which numbers have been computed."""
    generation, numbers = state.generation, ahead.given(state, body, arguments)
    call = partial(_called, body, (*arguments, buffer, numbers), callback)
    return _Attempt(generation, numbers, call)


def _called(body: FunctionType, given: tuple[Any, ...], callback: Any) -> Any:
    """Call the body, for Dynamo to compile."""
    CURRENT.states, CURRENT.leaves = None, ()
    outer, CURRENT.variables = CURRENT.variables, (body, given)
    compat.set_eval_frame(capture.of_bodies(callback))
    try:
        return body(*given)
    finally:
        compat.set_eval_frame(None)  # which would look at each frame behind the body
        CURRENT.variables = outer


def _note_captured(state: body_states.BodyState, clean: Clean | None) -> None:
    """Note that a call has run graphs, unless it has traced nothing and that was noted before.

    Raises:
        TorchRuntimeError: Python ran it, and one graph was asked for.
    """
    if not _is_still(clean):
        capture.require_one_graph()
        body_states.note_captured(state)


def _cleared(state: body_states.BodyState) -> bool:
    """Forget what earlier traces have left; return whether a graph has to have the whole body."""
    site_table.clear_recent()
    capture.forget_failure()
    state.forget_noted()
    return not state.may_break


def _replaced(
    before: FunctionType, body: FunctionType
) -> tuple[FunctionType, body_states.BodyState]:
    """Return a body that is called in place of another, and its state."""
    frames.compile_as(body.__code__, before.__code__)
    return body, body_states.state_of(body.__code__, is_body=True)


plain_python.have_dynamo_skip(sys.modules[__name__])
