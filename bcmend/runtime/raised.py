"""The exceptions that a trace has raised: where they were, and whether their text is known.

Follows what CPython does when an exception goes through a frame (``PyTraceBack_Here`` in
Python/traceback.c): each frame adds an entry in front, except where it raises again what it
handles. Dynamo inlines functions, and leaves some out; an entry counts as known only where the
frame that it is of has called the one behind it, as Dynamo's own step for calls shows.

The text of an exception is known where the program raises it, and where Python itself did, on
constants. What Dynamo's models of Python raise may read differently.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from inspect import CO_GENERATOR
from types import CodeType, FrameType, TracebackType
from typing import Any, Final

import torch
from torch._dynamo import exc
from torch._dynamo.symbolic_convert import InstructionTranslatorBase
from torch._dynamo.variables import ListVariable
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.misc import ExceptionVariable
from torch._dynamo.variables.user_defined import (
    UserDefinedClassVariable,
    UserDefinedExceptionObjectVariable,
    UserDefinedObjectVariable,
)

from bcmend.runtime import callers
from bcmend.runtime.per_trace import kept
from bcmend.runtime.tracebacks import Entry, place_of
from bcmend.static_lookup import ancestors, namespace

__all__ = [
    "Raised",
    "has_doubtful_text",
    "has_raised",
    "install",
    "known_of",
    "note_call",
    "note_reading",
]

_DYNAMO: Final = os.path.join(os.path.dirname(torch._dynamo.__file__), "")
#: Files of Dynamo, and functions, that call Python's own operators and functions with constants.
_EVALUATING: Final = ("builtin.py", "constant.py", "generic_int", "generic_float")
_SUBSCRIPTS: Final = ("BINARY_SUBSCR", "DELETE_SUBSCR")


@dataclass(frozen=True, slots=True)
class Raised:
    """What is known of an exception.

    Attributes:
        entries: what its traceback shows, the outermost first.
        is_exact: whether that is all of it.
        has_known_text: whether its arguments are those of eager execution.
        left: the frame that it has just left.
        between: entries of functions between that frame and its caller that Dynamo leaves out.
    """

    entries: tuple[Entry, ...]
    is_exact: bool
    has_known_text: bool
    left: Any = None
    between: tuple[Entry, ...] = ()


def known_of(tx: Any, error: VariableTracker) -> Raised | None:
    """Return what is known of an exception; ``None`` if the trace has not raised it."""
    return _table(tx).get(error)


def has_raised(tx: Any) -> bool:
    """Whether the trace has raised anything so far."""
    return bool(_table(tx))


def _table(tx: Any) -> dict[VariableTracker, Raised]:
    return kept(tx.output, "raised", dict)


# How an exception goes through frames


def _note(tx: Any, signal: exc.ObservedException) -> None:
    """Note that what ``tx`` has just traced raised the current exception, or let it through."""
    error = tx.exn_vt_stack._current_exception
    if error is None:
        return
    table = _table(tx)
    known = _with_frame(tx, error, signal, table.get(error))
    if tx.current_instruction.exn_tab_entry is None:
        known = _leaving(tx, known)
    table[error] = known


def _with_frame(
    tx: Any, error: VariableTracker, signal: exc.ObservedException, known: Raised | None
) -> Raised:
    instruction = tx.current_instruction
    is_raise = instruction.opname == "RAISE_VARARGS"
    if instruction.opname == "RERAISE" or (is_raise and not instruction.arg):
        return replace(known, left=None) if known else Raised((), False, False)
    place = place_of(instruction.positions)
    is_placed = place is not None and _is_as_in_eager_execution(tx.f_code)
    entry = Entry(tx.f_code, tx.f_globals, place or (0, 0, -1, -1))
    if known is None:
        of_program = is_raise and is_placed and not _is_of_model(error, signal)
        return Raised(
            (entry,),
            is_placed and error.source is None,
            of_program or _is_of_python(tx, error, signal),
        )
    if known.left is not None and callers.is_a_part(known.left.f_code):
        return replace(known, left=None)
    if is_raise:
        has_context = _has_context_of_python(tx, error)
        return Raised(
            (entry, *known.entries),
            known.is_exact and is_placed and has_context,
            known.has_known_text,
        )
    is_of_call = known.left is not None and known.left.parent is tx
    return Raised(
        (entry, *known.between, *known.entries),
        known.is_exact and is_placed and is_of_call,
        known.has_known_text,
    )


def _leaving(tx: Any, known: Raised) -> Raised:
    """Note that an exception leaves a frame, whose caller is still making the call."""
    if tx.parent is None or callers.is_a_part(tx.f_code):
        return replace(known, left=tx, between=())
    between = _between(tx.parent, tx)
    is_exact = known.is_exact and between is not None
    return replace(known, left=tx, between=between or (), is_exact=is_exact)


def _between(caller: Any, tx: Any) -> tuple[Entry, ...] | None:
    """Return the frames between a function and its caller; ``None`` if they are not known."""
    fn, at = getattr(caller, _CALLED, (None, None))
    if at != caller.instruction_pointer or tx.f_code.co_flags & CO_GENERATOR:
        return None
    if not callers.calls_a_module(caller) or tx.f_code in callers.CALLING_A_MODULE:
        return () if _code_of(fn) is tx.f_code else None
    module = getattr(fn, "value", None)
    forward = getattr(getattr(module, "forward", None), "__code__", None)
    if not isinstance(module, torch.nn.Module) or forward is not tx.f_code:
        return None
    places = [(code, place_of(at)) for code, at in callers.calls_of_a_module()]
    names = torch.nn.Module._call_impl.__globals__
    return tuple(Entry(code, names, place) for code, place in places if place is not None)


def _code_of(fn: Any) -> CodeType | None:
    """Return the code that a call of ``fn`` runs, where nothing else comes in between."""
    inner = getattr(fn, "func", None)
    if isinstance(inner, VariableTracker):  # of functools.partial, which has no frame
        return _code_of(inner)
    if isinstance(fn, UserDefinedClassVariable):
        is_plain = type(fn.value) is type and fn.value.__new__ is object.__new__
        return getattr(fn.value.__init__, "__code__", None) if is_plain else None
    if isinstance(fn, UserDefinedObjectVariable):
        found = (namespace(kind).get("__call__") for kind in ancestors(type(fn.value)))
        return getattr(next((each for each in found if each), None), "__code__", None)
    try:
        code = fn.get_code()
    except (AttributeError, NotImplementedError):
        return None
    return code if isinstance(code, CodeType) else None


def _is_as_in_eager_execution(code: CodeType) -> bool:
    """Whether code is no model of Dynamo's, and none that asks whether it is being compiled."""
    of_dynamo = code.co_filename.startswith(_DYNAMO)
    return not of_dynamo and _ASKING.isdisjoint(code.co_names)


_ASKING: Final = frozenset(
    ["is_compiling", "is_dynamo_compiling", "is_torchdynamo_compiling", "is_exporting"]
)


def _has_context_of_python(tx: Any, error: Any) -> bool:
    """Whether an exception that is raised once more has the context that Python gives it."""
    context, stack = error.var_getattr(tx, "__context__"), tx.exn_vt_stack
    if len(stack) == 0:
        return bool(context.is_constant_none())
    return stack[-1] is error or context is stack[-1]


#: By this attribute of a translator it is known what its frame calls, and at which instruction.
_CALLED: Final = "_bcmend_called"


def note_call(tx: Any, fn: VariableTracker) -> None:
    """Note that a frame being traced calls ``fn``."""
    setattr(tx, _CALLED, (fn, tx.instruction_pointer))


# Whose text it is


def _is_of_model(error: Any, signal: exc.ObservedException) -> bool:
    """Whether Dynamo itself has made an exception, or made one of a class that Python does not."""
    *_, raising = _entries_of(signal.__traceback__)
    picks_its_class = error.exc_type is OSError and len(error.args) > 1
    return picks_its_class or raising.f_code is exc.raise_observed_exception.__code__


def _is_of_python(tx: Any, error: Any, signal: exc.ObservedException) -> bool:
    """Whether an exception that no ``raise`` has raised has the arguments that Python gives it."""
    if error.exc_type is KeyError and tx.current_instruction.opname in _SUBSCRIPTS:
        return len(error.args) == 1
    real = signal.__context__
    if real is None or type(real) is not error.exc_type or not _is_of_evaluation(signal):
        return False
    given = [each.as_python_constant() for each in error.args if each.is_python_constant()]
    return given == list(real.args)


def _is_of_evaluation(signal: exc.ObservedException) -> bool:
    """Whether Dynamo has evaluated something by Python itself, and that has failed."""
    entries = list(_entries_of(signal.__traceback__))
    if len(entries) < 2 or entries[-1].f_code is not exc.raise_observed_exception.__code__:
        return False
    raising = entries[-2]
    if type(raising.f_locals.get("self")) is ListVariable:
        return True  # which keeps its items in a list
    code = raising.f_code
    return code.co_name in _EVALUATING or os.path.basename(code.co_filename) in _EVALUATING


def _entries_of(entry: TracebackType | None) -> Iterator[FrameType]:
    while entry is not None:
        yield entry.tb_frame
        entry = entry.tb_next


def has_doubtful_text(tx: Any) -> bool:
    """Whether the trace has read a text or arguments that may not be those of eager execution."""
    return bool(kept(tx.output, "doubtful_texts", list))


def note_reading(tx: Any, error: Any, plain: Iterable[str] = ()) -> None:
    known = known_of(tx, error)
    is_known = known is None or known.has_known_text
    is_plain = all(getattr(error.exc_type, name) is getattr(BaseException, name) for name in plain)
    if not (is_known and is_plain):
        kept(tx.output, "doubtful_texts", list).append(error)


_EXCEPTION_HANDLER: Final = InstructionTranslatorBase.exception_handler
_GETATTR: Final = ExceptionVariable.var_getattr
_GETATTR_OF_CLASS: Final = UserDefinedExceptionObjectVariable.var_getattr
_REPR: Final = ExceptionVariable.repr_impl


def _exception_handler(self: Any, raised_exception: exc.ObservedException) -> None:
    _note(self, raised_exception)
    _EXCEPTION_HANDLER(self, raised_exception)


def _repr(self: Any, tx: Any) -> VariableTracker:
    note_reading(tx, self, ["__repr__"])
    return _REPR(self, tx)


def _var_getattr(self: Any, tx: Any, name: str) -> VariableTracker:
    if name == "args":
        note_reading(tx, self)
    return _GETATTR(self, tx, name)


def _var_getattr_of_class(self: Any, tx: Any, name: str) -> VariableTracker:
    if name == "args":
        note_reading(tx, self)
    value: VariableTracker = _GETATTR_OF_CLASS(self, tx, name)
    return value


def install() -> None:
    """Follow exceptions in all that Dynamo traces."""
    InstructionTranslatorBase.exception_handler = _exception_handler  # type: ignore[method-assign]
    ExceptionVariable.repr_impl = _repr  # type: ignore[method-assign]
    ExceptionVariable.var_getattr = _var_getattr  # type: ignore[method-assign]
    UserDefinedExceptionObjectVariable.var_getattr = (  # type: ignore[method-assign]
        _var_getattr_of_class
    )
