"""The first traces of what waits to be mended: where Dynamo would stop, it is mended.

Objects that wait are captured whole, or not at all: a graph break is an error that comes out of the
conversion of the frame before anything of it has run. They are patched then as ahead of a call, and
Dynamo runs the frame as mended code. Other code that calls theirs is captured as ever; where its
graph would break in theirs, it is traced again.

A few constructs stop a trace that Dynamo would not stop at, since what it does is not what eager
execution does, or holds for one value of a number.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Sequence
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, Final

import torch

from bcmend.dynamo import compat, frames, handlers, hooks
from bcmend.dynamo.models import functions, methods, translators
from bcmend.dynamo.values import EXCEPTIONS
from bcmend.knowledge.interruptions import is_interruption
from bcmend.patching import waiting
from bcmend.rewrite.writer.shell import write_in_place
from bcmend.weak_tables import ByIdentity

if TYPE_CHECKING:
    from bcmend.patching.table import Patched
    from bcmend.tracing.search.assumptions import Finding

_LOG: Final = logging.getLogger("bcmend")
_FAILURES: Final = (compat.TorchDynamoException, compat.GuardOnDataDependentSymNode, IndexError)


class _Conversion(threading.local):
    """The frame that this thread has Dynamo compile.

    Attributes:
        is_under_way: whether there is one.
        waited_for: the code of it or of its callers that is waited for.
    """

    is_under_way = False
    waited_for: Sequence[CodeType] = ()


_CONVERSION: Final = _Conversion()


@hooks.watch(compat.CatchErrorsWrapper, methods.CALL, "mend where a frame would break its graph")
def _convert(convert: Any, callback: Any, frame: Any, *others: Any) -> Any:
    waited_for = _waited_for(frame.f_code, sys._getframe(1))
    before = _CONVERSION.is_under_way, _CONVERSION.waited_for
    _CONVERSION.is_under_way, _CONVERSION.waited_for = True, waited_for
    begin = time.perf_counter()
    try:
        if not waited_for:
            return convert(callback, frame, *others)
        translators.store_nothing(callback)
        with compat.compile_lock:
            converted = frames.captured_whole(callback, frame, *others, convert=convert)
        _SETTING_UP.pop(frame.f_code)
        return converted
    except _FAILURES as error:
        if is_interruption(error):
            raise
        if waited_for and _sets_up(frame.f_code, error):
            return _plainly(frame.f_code, callback, *others)
        seconds = time.perf_counter() - begin
        is_mended = _mend_behind(error, waited_for)
        if is_mended:
            _note_stop(frame.f_code, error, seconds)
        # Another thread may have mended it.
        mended = waiting.mended(frame.f_code, frame.f_globals, frame.closure)
        if not (is_mended or mended or waited_for):
            raise
        # What waited and is not mended was unpatched meanwhile.
    finally:
        _CONVERSION.is_under_way, _CONVERSION.waited_for = before
    if mended is None:
        return convert(callback, frame, *others)
    return _in_place_of_the_frame(mended, callback, *others)


#: Kinds of graph break at locks, at attributes of classes, at what is in no Python code.
_OF_SETTING_UP: Final = (
    "Unsupported context manager",
    "setattr() on unsupported type",
    "Attempted to call function marked as skipped",
    "Unsupported function call",
)
#: The code of frames that were run in plain Python, and have not been captured since.
_SETTING_UP: Final[ByIdentity[CodeType, None]] = ByIdentity()

#: Has Dynamo run a frame in plain Python this time, and what it calls.
_PLAINLY: Final = translators.skipped("bcmend: the call sets up what later calls find")


def _sets_up(code: CodeType, error: BaseException) -> bool:
    """Return whether a trace stopped in what runs in a first call alone; not twice in a row."""
    if getattr(error, "gb_type", "") not in _OF_SETTING_UP or code in _SETTING_UP:
        return False
    from bcmend.analysis import run_once

    traced = frames.of_the_program_in(error)
    places = [
        run_once.Place(each.f_code, tuple(positions), each.f_globals)
        for each in reversed(traced)
        if (positions := each.current_instruction.positions) is not None
    ]
    if not run_once.runs_once(places):
        return False
    _SETTING_UP.put(code, None)
    return True


@hooks.watch(compat.package.DiskDynamoCache, methods.LOAD_PACKAGE, "find nothing of what is mended")
def _load(load: Any, cache: Any, function: Any) -> Any:
    code = getattr(function, "__code__", None)
    return None if code is not None and waiting.is_reached(code) else load(cache, function)


@hooks.watch(compat.convert_frame, methods.COMPILE_FRAME, "mend what is exported")
def _compile_frame(compile_frame: Any, code: CodeType, *others: Any, **named: Any) -> Any:
    if not _CONVERSION.is_under_way and waiting.mend(waiting.everything()):
        mended = waiting.mended(code)
        code = code if mended is None else mended.mended.shell
    return compile_frame(code, *others, **named)


@hooks.watch(compat.Tracer, methods.LOG_GRAPH_BREAK, "mend where a graph of other code would break")
def _log_graph_break(
    log_graph_break: Any, tx: compat.Tracer, code_options: Any, reason: str, exc: Any
) -> None:
    if not _CONVERSION.waited_for and _mend_behind(exc, ()):
        *_, stopped = [tx, *frames.traced_in(exc)]
        # Reports are of what was patched, and not of the root.
        from bcmend.tracing.search.falsified import Falsified

        raise Falsified(_note_stop(stopped.f_code, exc))
    log_graph_break(tx, code_options, reason=reason, exc=exc)


@hooks.watch(
    compat.symbolic_convert,
    methods.NORMALIZE_ASSERT,
    "have assertions about tensors break the graph: torch raises another exception",
)
def _is_assertion(is_assertion: Any, tx: compat.Tracer, *others: Any) -> Any:
    found = is_assertion(tx, *others)
    if found and _is_waited_for(tx):
        tx.pop()  # the message, which goes with the answer
        return False
    return found


@hooks.watch(
    compat.TorchInGraphFunctionVariable,
    methods.CALL_FUNCTION,
    "stop at `torch._assert` of a tensor: torch raises another exception",
)
def _call_of_torch(
    call_function: Any, variable: Any, tx: compat.Tracer, args: Any, kwargs: Any
) -> Any:
    if variable.value is torch._assert:
        conditions = [*args[:1], *(kwargs[name] for name in kwargs if name == "condition")]
        if any(isinstance(each.realize(), compat.TensorVariable) for each in conditions):
            _stop(tx, "assertion of torch")
    return call_function(variable, tx, args, kwargs)


@hooks.watch(
    compat.BuiltinVariable, methods.CALL_STR, "stop at texts of exceptions: torch joins `args`"
)
def _call_str(call_str: Any, builtin: Any, tx: compat.Tracer, value: Any) -> Any:
    if isinstance(value, EXCEPTIONS):
        _stop(tx, "text of an exception")
    return call_str(builtin, tx, value)


@hooks.watch(compat.BuiltinVariable, methods.CALL_ISINSTANCE, "stop at `torch.autograd.Variable`")
def _call_isinstance(
    call_isinstance: Any, builtin: Any, tx: compat.Tracer, value: Any, kinds: Any
) -> Any:
    if _may_name_variable(kinds):
        _stop(tx, "whether something is a Variable")
    return call_isinstance(builtin, tx, value, kinds)


def _may_name_variable(kinds: Any) -> bool:
    """Return whether the class whose instances torch takes for tensors only is among ``kinds``."""
    if isinstance(kinds, compat.TupleVariable):
        return any(map(_may_name_variable, kinds.items))
    return getattr(kinds, "value", None) is torch.autograd.Variable


@hooks.watch(
    compat.NumpyVariable, methods.CALL_FUNCTION, "stop at draws of numpy: torch draws its own"
)
def _call_numpy(call_function: Any, variable: Any, tx: compat.Tracer, *others: Any) -> Any:
    if type(getattr(variable.value, "__self__", None)).__name__ == "RandomState":
        _stop(tx, "draw of numpy")
    return call_function(variable, tx, *others)


@hooks.watch(compat.user_defined, methods.CALL_RANDOM, "stop at a number of Python's generators")
def _call_random(call_random: Any, tx: compat.Tracer, *others: Any) -> Any:
    _stop(tx, "number of a generator")
    return call_random(tx, *others)


@hooks.watch(compat.TensorVariable, methods.ITEM_OF_TENSOR, "stop at a number out of a tensor")
@hooks.watch(compat.TensorVariable, methods.TOLIST_OF_TENSOR, "stop at numbers out of a tensor")
def _take_out_numbers(take: Any, tensor: Any, tx: compat.Tracer, *others: Any, **named: Any) -> Any:
    _stop(tx, "number out of a tensor")
    return take(tensor, tx, *others, **named)


@hooks.watch(compat.ShapeEnv, methods.CREATE_UNBACKED_INT, "stop at a size that the data decide")
def _create_size(create: Any, *others: Any, **named: Any) -> Any:
    tx = getattr(compat.translator_tls, "current_tx", None)
    if tx is not None:
        _stop(tx.output.current_tx, "size that the data decide")
    return create(*others, **named)


@hooks.watch(
    compat.BaseListVariable,
    methods.CONTAINS,
    "stop at a number looked for among sizes: torch compares constants alone",
)
def _look_for_number(look: Any, items: Any, tx: compat.Tracer, item: Any) -> Any:
    found = look(items, tx, item)
    if item.is_python_constant() and any(map(_is_number_known_later, items.items)):
        _stop(tx, "number among sizes")
    return found


def _is_number_known_later(value: Any) -> bool:
    return value.is_realized() and isinstance(value.realize(), compat.SymNodeVariable)


#: What Dynamo takes from a variable of an outer scope as it is, and what programs do not exchange.
_FIXED: Final = (FunctionType, MethodType, ModuleType, type)


@hooks.watch(
    compat.UserFunctionVariable,
    methods.BIND_ARGUMENTS,
    "stop at what decorators hold of methods of objects that the call makes: torch copies it",
)
def _bind(bind: Any, function: Any, tx: compat.Tracer, args: Any, kwargs: Any) -> Any:
    if functions.has_unknown_cells(function, args) and _may_differ_later(function.fn):
        _stop(tx, "what a decorator holds")
    return bind(function, tx, args, kwargs)


def _may_differ_later(function: FunctionType) -> bool:
    """Return whether a function may find other contents in an outer variable in other calls."""
    for cell in function.__closure__ or ():
        try:
            contents = cell.cell_contents
        except ValueError:  # it is not set yet
            continue
        if not isinstance(contents, _FIXED):
            return True
    return False


def _stop(tx: compat.Tracer, what: str) -> None:
    """Stop a trace of what waits, as at a graph break."""
    if _is_waited_for(tx):
        handlers.break_graph(what, "", "Code that waits to be mended is mended here.", hints=[])


def _is_waited_for(tx: compat.Tracer) -> bool:
    """Return whether a frame that is traced is one of what waits."""
    return bool(_CONVERSION.waited_for) or any(
        waiting.is_reached(each.f_code) for each in frames.outwards(tx)
    )


@hooks.watch(
    compat.export_trace, methods.EXPORT_STRICT, "say why an export has failed", is_lasting=True
)
def _strict_export(export: Any, *others: Any, **named: Any) -> Any:
    with hooks.REGISTRY.placed(_OF_EXPORT):
        return export(*others, **named)


def _compile_exported(compile_frame: Any, *others: Any, **named: Any) -> Any:
    try:
        return compile_frame(*others, **named)
    except _FAILURES as error:
        _note_why(error)
        raise


_OF_EXPORT: Final = hooks.Hook(
    compat.convert_frame, methods.COMPILE_FRAME, "say why it failed", _compile_exported, None
)


@hooks.watch(
    compat.export_trace,
    methods.EXPORT_NON_STRICT,
    "mend what is run with fake tensors",
    is_lasting=True,
)
def _non_strict_export(export: Any, *others: Any, **named: Any) -> Any:
    """Export what runs with fake tensors; where patched code asks for data, as Dynamo traces it."""
    waiting.mend(waiting.everything())
    from bcmend.tracing.output import dropped_output

    try:
        with dropped_output.told_at_the_end():
            return export(*others, **named)
    except _FAILURES as error:
        if is_interruption(error) or not _is_out_of_patched_code(error):
            raise
        failure = error
    _LOG.info("exported as Dynamo traces it, since without: %s", failure)
    try:
        return getattr(compat.export_trace, methods.EXPORT_STRICT)(*others, **named)
    except _FAILURES as error:
        if is_interruption(error):
            raise
        for note in getattr(error, "__notes__", ()):
            failure.add_note(note)
    raise failure


def _is_out_of_patched_code(error: BaseException) -> bool:
    """Return whether an exception has gone through a frame of patched code."""
    codes = (frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(map(frames.is_of_patched, codes))


def _note_why(error: BaseException) -> None:
    """Note on an error of an export why bcmend has not prevented it."""
    if not is_interruption(error) and any(
        frames.is_of_patched(each.f_code) for each in frames.traced_in(error)
    ):
        from bcmend.tracing.entry import still_breaking

        still_breaking.add_to(error)


def _note_stop(code: CodeType, error: BaseException, seconds: float = 0.0) -> Finding:
    """Note that torch does not capture code as it is, and how long that took to be found."""
    from bcmend.tracing.search import log
    from bcmend.tracing.search.assumptions import Claim, Finding
    from bcmend.tracing.sites import body_states

    trace = log.note_error(code, error, seconds)
    reason = trace.reason
    _LOG.info("Dynamo stops at %s:%s (%s): the code is mended", trace.file, trace.line, reason)
    found = Finding(Claim.CAPTURED, body_states.state_of(code), evidence=reason)
    log.add_finding(found)
    return found


def _mend_behind(error: BaseException, codes: Iterable[CodeType]) -> bool:
    """Mend what waits for ``codes`` or for a frame that was traced; return whether anything did."""
    if is_interruption(error):
        return False
    codes = [*codes, *(each.f_code for each in frames.traced_in(error))]
    if waiting.mend(codes):
        return True
    return any(map(waiting.is_reached, codes)) and waiting.mend(codes)


def _waited_for(code: CodeType, caller: FrameType | None) -> list[CodeType]:
    """Return what is waited for among ``code`` and that of its callers."""
    found = [code] if waiting.is_waited_for(code) else []
    while caller is not None:
        if waiting.is_waited_for(caller.f_code):
            found.append(caller.f_code)
        caller = caller.f_back
    return found or ([code] if waiting.is_reached(code) else [])


def _in_place_of_the_frame(patched: Patched, callback: Any, _: object, frame_state: Any) -> Any:
    """Return what has Dynamo run mended code in place of a frame."""
    from bcmend.patching import installer
    from bcmend.tracing.search.assumptions import Claim, Finding
    from bcmend.tracing.search.calls import CURRENT
    from bcmend.tracing.search.falsified import weaken
    from bcmend.tracing.sites import body_states

    original, written = patched.original, patched.mended
    code = _IN_PLACE.setdefault(written.shell, lambda: write_in_place(original, written.body))
    installer.note_written(patched, code)
    frames.compile_as(code, original)
    if original in _SETTING_UP:
        _SETTING_UP.pop(original)
        weaken(Finding(Claim.SETTLED, body_states.state_of(written.body, is_body=True)))
    CURRENT.callback = callback
    return _once(code, "bcmend has mended the function", frame_state)


def _plainly(code: CodeType, callback: Any, _: object, frame_state: Any) -> Any:
    """Return what has Dynamo run a frame, and what it calls, in plain Python.

    Where one graph was asked for, torch wants something compiled to run, and compiles nothing else.
    """
    if translators.wants_one_graph(callback):
        return _once(code.replace(), "bcmend has run the function in plain Python", frame_state)
    return _PLAINLY


def _once(code: CodeType, reason: str, frame_state: Any) -> Any:
    """Return what has Dynamo run ``code`` in place of a frame, and never again.

    ``reason`` is what torch says where it compiles the original code once more.
    """
    guards = frames.uncounted_guards(reason)
    guards.root.add_lambda_guard(_never, [reason], None)
    compile_id = compat.get_compile_id(frame_state)
    return compat.wrap_guarded_code(compat.GuardedCode(code, guards, compile_id))


def _never(_: object) -> bool:
    return False


#: What runs in place of frames of functions with these shells. One for each: on Python 3.11 torch
#: never frees code that has run in place of a frame if anything has looked at that frame.
_IN_PLACE: Final[ByIdentity[CodeType, CodeType]] = ByIdentity()
