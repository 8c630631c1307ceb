"""The exceptions that a trace has raised: their tracebacks, and whether their text is known.

Follows CPython (``PyTraceBack_Here`` in Python/traceback.c): each frame that an exception goes
through adds an entry in front, except where it re-raises what it handles. Dynamo inlines functions
and skips some, so an entry is known only where its frame has called the frame behind it.

The text is known where the program raises an exception, or Python itself did on constants.
Dynamo's models of Python word theirs differently.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from inspect import CO_GENERATOR
from traceback import walk_tb
from types import CodeType, FrameType
from typing import Any, Final

import torch

from bcmend.bytecode.decode import operation
from bcmend.bytecode.opcodes import ITEM_DELETES, ITEM_READS, RAISES, RAISES_AGAIN
from bcmend.delivery.tracebacks import TracebackEntry, place_of
from bcmend.dynamo import compat, frames, handlers, hooks, snapshots
from bcmend.dynamo.models import exceptions, methods, objects
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.trace_state import when_late
from bcmend.dynamo.values import Value
from bcmend.knowledge.static_lookup import ancestors, namespace
from bcmend.tracing.heap import roots
from bcmend.tracing.output import caller_frames

_DYNAMO: Final = os.path.join(os.path.dirname(compat.DYNAMO_FILE), "")
_SUBSCRIPTS: Final = ITEM_READS | ITEM_DELETES
_ASKS_FOR_TRACING: Final = frozenset(
    ["is_compiling", "is_dynamo_compiling", "is_torchdynamo_compiling", "is_exporting"]
)


@dataclass(frozen=True, slots=True)
class ExceptionFacts:
    """What is known of an exception.

    Attributes:
        entries: those of its traceback, the outermost first.
        is_exact: whether these are all.
        has_known_text: whether its arguments are those of eager execution.
        left: the frame that it has just left.
        between: entries of functions between that frame and its caller that Dynamo skips.
    """

    entries: tuple[TracebackEntry, ...]
    is_exact: bool
    has_known_text: bool
    left: Any = None
    between: tuple[TracebackEntry, ...] = ()


_RAISED: Final[Slot[dict[Value, ExceptionFacts]]] = Slot(dict, rolls_back=True)
#: Exceptions whose text was read, and may be another in eager execution.
_DOUBTFUL: Final[Slot[list[Any]]] = Slot(list, rolls_back=True)


def known_of(tx: compat.Tracer, error: Value) -> ExceptionFacts | None:
    """Return what is known of an exception; ``None`` if the trace has not raised it."""
    return _table(tx).get(error)


def has_raised(tx: compat.Tracer) -> bool:
    """Return whether the trace may have raised anything so far."""
    return bool(_table(tx))


@when_late
def _note_earlier(tx: compat.Tracer) -> None:
    """Note exceptions of the part of a trace before patched code, which was not followed."""
    held = [edge.value for edge in roots.edges(tx)]

    def note(value: Value) -> None:
        if isinstance(value, compat.ExceptionVals):
            _table(tx)[value] = ExceptionFacts((), is_exact=False, has_known_text=False)

    snapshots.visit(note, held)


def _table(tx: compat.Tracer) -> dict[Value, ExceptionFacts]:
    return _RAISED.of(tx.output)


def _with_frame(
    tx: compat.Tracer, error: Value, signal: compat.ObservedException, known: ExceptionFacts | None
) -> ExceptionFacts:
    """Return what is known of an exception that ``tx`` has just raised or let through."""
    instruction = tx.current_instruction
    is_raise = operation(instruction) in RAISES
    if operation(instruction) in RAISES_AGAIN or (is_raise and not instruction.arg):
        return replace(known, left=None) if known else ExceptionFacts((), False, False)
    place = place_of(instruction.positions)
    is_placed = place is not None and _is_as_in_eager_execution(tx.f_code)
    entry = TracebackEntry(tx.f_code, tx.f_globals, place or (0, 0, -1, -1))
    if known is None:
        of_program = is_raise and is_placed and not _is_of_model(error, signal)
        has_known_text = of_program or _is_of_python(tx, error, signal)
        return ExceptionFacts((entry,), is_placed and error.source is None, has_known_text)
    if known.left is not None and caller_frames.is_a_part(known.left.f_code):
        return replace(known, left=None)
    if is_raise:
        is_expected = _has_context_of_python(tx, error)
        entries = (entry, *known.entries)
    else:
        is_expected = known.left is not None and known.left.parent is tx
        entries = (entry, *known.between, *known.entries)
    is_exact = known.is_exact and is_placed and is_expected
    return ExceptionFacts(entries, is_exact, known.has_known_text)


def _leaving(tx: compat.Tracer, known: ExceptionFacts) -> ExceptionFacts:
    """Note that an exception leaves a frame, whose caller is still making the call."""
    if tx.parent is None or caller_frames.is_a_part(tx.f_code):
        return replace(known, left=tx, between=())
    between = _between(tx.parent, tx)
    is_exact = known.is_exact and between is not None
    return replace(known, left=tx, between=between or (), is_exact=is_exact)


def _between(caller: Any, tx: compat.Tracer) -> tuple[TracebackEntry, ...] | None:
    """Return the entries between a function and its caller; ``None`` if they are not known."""
    fn, at = _CALLED.of(caller)
    if at != caller.instruction_pointer or tx.f_code.co_flags & CO_GENERATOR:
        return None
    if not caller_frames.calls_a_module(caller) or tx.f_code in caller_frames.CALLING_A_MODULE:
        return () if _code_of(fn) is tx.f_code else None
    module = getattr(fn, "value", None)
    forward = getattr(getattr(module, "forward", None), "__code__", None)
    if not isinstance(module, torch.nn.Module) or forward is not tx.f_code:
        return None
    places = [(code, place_of(at)) for code, at in caller_frames.calls_of_a_module()]
    names = compat.MODULE_CALL_IMPL.__globals__
    return tuple(TracebackEntry(code, names, place) for code, place in places if place is not None)


def _code_of(fn: Any) -> CodeType | None:
    """Return the code that a call of ``fn`` runs without a frame in between; else ``None``."""
    inner = getattr(fn, "func", None)
    if isinstance(inner, Value):  # of functools.partial, which has no frame
        return _code_of(inner)
    if isinstance(fn, compat.UserDefinedClassVariable):
        is_plain = type(fn.value) is type and fn.value.__new__ is object.__new__
        return getattr(fn.value.__init__, "__code__", None) if is_plain else None
    if isinstance(fn, compat.UserDefinedObjectVariable):
        found = (namespace(kind).get("__call__") for kind in ancestors(type(fn.value)))
        return getattr(next((each for each in found if each), None), "__code__", None)
    try:
        code = fn.get_code()
    except (AttributeError, NotImplementedError):
        return None
    return code if isinstance(code, CodeType) else None


def _is_as_in_eager_execution(code: CodeType) -> bool:
    """Return whether code is no polyfill of Dynamo's, and does not ask whether it is compiled."""
    of_dynamo = code.co_filename.startswith(_DYNAMO)
    return not of_dynamo and _ASKS_FOR_TRACING.isdisjoint(code.co_names)


def _has_context_of_python(tx: compat.Tracer, error: Any) -> bool:
    """Return whether an exception that is raised again has the context that Python gives it."""
    context = objects.attribute_of(tx, error, "__context__")
    handled = exceptions.innermost_handled(tx)
    if handled is None:
        return bool(context.is_constant_none())
    return handled is error or context is handled


#: What a frame being traced calls, and at which instruction.
_CALLED: Final[Slot[tuple[Any, Any]]] = Slot(lambda: (None, None), rolls_back=False)


def note_call(tx: compat.Tracer, fn: Value) -> None:
    """Note that a frame being traced calls ``fn``."""
    _CALLED.put(tx, (fn, tx.instruction_pointer))


def _is_of_model(error: Any, signal: compat.ObservedException) -> bool:
    """Return whether Dynamo has made an exception, or one of a class that Python picks itself."""
    picks_its_class = (
        exceptions.class_of(error) is OSError and len(exceptions.arguments_of(error)) > 1
    )
    return picks_its_class or bool(_raised_for(signal))


def _raised_for(signal: compat.ObservedException) -> list[FrameType]:
    """Return the frames before the one in which Dynamo raises of its own; none if it does not."""
    entries = [frame for frame, _ in walk_tb(signal.__traceback__)]
    codes = [each.f_code for each in entries]
    return entries[: codes.index(exceptions.RAISING)] if exceptions.RAISING in codes else []


def _is_of_python(tx: compat.Tracer, error: Any, signal: compat.ObservedException) -> bool:
    """Return whether an exception without a ``raise`` has the arguments that Python gives it."""
    kind = exceptions.class_of(error)
    if kind is KeyError and operation(tx.current_instruction) in _SUBSCRIPTS:
        return len(exceptions.arguments_of(error)) == 1
    real = signal.__context__
    if real is None or type(real) is not kind or not _is_of_evaluation(signal):
        return False
    arguments = exceptions.arguments_of(error)
    given = [each.as_python_constant() for each in arguments if each.is_python_constant()]
    return given == list(real.args)


def _is_of_evaluation(signal: compat.ObservedException) -> bool:
    """Return whether Dynamo had Python itself evaluate something, which has failed."""
    entries = _raised_for(signal)
    if not entries:
        return False
    code = entries[-1].f_code
    names = code.co_name, os.path.basename(code.co_filename)
    is_of_a_list = type(entries[-1].f_locals.get("self")) is compat.ListVariable
    return is_of_a_list or not exceptions.EVALUATING.isdisjoint(names)


#: What Dynamo raises where it does not know of an operation.
_OF_UNKNOWN_OPERATIONS: Final = (TypeError, AttributeError)
#: So many of Dynamo's functions before the one that raises are given the operands.
_WITH_OPERANDS: Final = 4


def _require_known_operands(
    tx: compat.Tracer, error: Any, signal: compat.ObservedException
) -> None:
    """Break the graph where a handler may catch that Dynamo does not know of an operation.

    To Dynamo ``len(range(n))`` and ``"%d" % n`` are errors of the program where ``n`` is a symbolic
    number.
    """
    is_of_these = exceptions.class_of(error) in _OF_UNKNOWN_OPERATIONS
    if not is_of_these or not frames.is_in_a_block(tx):
        return
    given = [[*each.f_locals.values()] for each in _raised_for(signal)[-_WITH_OPERANDS:]]
    found: list[Value] = []

    def note(value: Value) -> None:
        if isinstance(value, compat.SymNodeVariable):
            found.append(value)

    snapshots.visit(note, given)
    if found:
        handlers.break_graph(
            "an error of an operation on a symbolic number",
            f"{exceptions.class_of(error).__name__}: {error}",
            "Dynamo raises it where it does not know of an operation that Python has.",
        )


def has_doubtful_text(tx: compat.Tracer) -> bool:
    """Return whether the trace has read the text of an exception that may differ in eager."""
    return bool(_DOUBTFUL.of(tx.output))


def note_reading(tx: compat.Tracer, error: Any, plain: Iterable[str] = ()) -> None:
    """Note that the text of an exception is read, by methods that ``plain`` names."""
    known = known_of(tx, error)
    is_known = known is None or known.has_known_text
    kind = exceptions.class_of(error)
    is_plain = all(getattr(kind, name) is getattr(BaseException, name) for name in plain)
    if not (is_known and is_plain):
        _DOUBTFUL.of(tx.output).append(error)


_PURPOSE: Final = "exceptions on their way through frames"


@hooks.around(compat.InstructionTranslatorBase, methods.EXCEPTION_HANDLER, _PURPOSE, gate=None)
def _exception_handler(inner: Any, self: Any, raised_exception: compat.ObservedException) -> None:
    error = exceptions.raised_in(self)
    if error is not None:
        table = _table(self)
        if error not in table:
            _require_known_operands(self, error, raised_exception)
        known = _with_frame(self, error, raised_exception, table.get(error))
        leaves = exceptions.handler_of(self.current_instruction) is None
        table[error] = _leaving(self, known) if leaves else known
    inner(self, raised_exception)


@hooks.around(compat.ExceptionVariable, methods.REPR, _PURPOSE, gate=None)
def _repr(inner: Callable[..., Value], self: Any, tx: compat.Tracer) -> Value:
    note_reading(tx, self, ["__repr__"])
    return inner(self, tx)


def _text(inner: Callable[..., Value], self: Any, tx: compat.Tracer) -> Value:
    note_reading(tx, self, ["__str__"])
    return inner(self, tx)


def _read_attribute(inner: Callable[..., Any], self: Any, *given: Any) -> Any:
    *before, name = given
    if name == "args":
        note_reading(before[0] if before else compat.translator_tls.current_tx, self)
    return inner(self, *given)


for _kind, _name in exceptions.READERS:
    hooks.around(_kind, _name, _PURPOSE, gate=None)(_read_attribute)
for _name in exceptions.TEXT_SLOTS:
    hooks.around(compat.ExceptionVariable, _name, _PURPOSE, gate=None)(_text)
