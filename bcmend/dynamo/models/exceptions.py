"""Models of exceptions of the program, and what the translator of a frame knows of them."""

from __future__ import annotations

from types import CodeType
from typing import Any, Final

from bcmend.dynamo import compat

#: Files and functions of Dynamo that have Python evaluate operators and functions on constants.
EVALUATING: Final = frozenset(["builtin.py", "constant.py", "generic_int", "generic_float"])
#: The code by which Dynamo raises an exception of its models' own making.
RAISING: Final[CodeType] = compat.raise_observed_exception.__code__


def class_of(error: Any) -> Any:
    """Return the class of an exception."""
    return error.exc_type


def arguments_of(error: Any) -> list[compat.VariableTracker]:
    """Return what the ``args`` of an exception hold."""
    return list(error.args)


def set_arguments(error: Any, arguments: list[compat.VariableTracker]) -> None:
    """Give an exception of Python's own class other ``args``."""
    error.args = arguments


def set_arguments_of_object(
    effects: compat.SideEffects, error: Any, arguments: list[compat.VariableTracker]
) -> None:
    """Give an exception of a class of the program other ``args``, as its constructor does."""
    error.exc_vt.args = list(arguments)
    effects.store_attr(error, "args", compat.TupleVariable(list(arguments)))


def related_to(error: Any) -> tuple[compat.VariableTracker, compat.VariableTracker]:
    """Return the context and the cause of an exception, as its model holds them."""
    return error.__context__, error.__cause__


def handled_in(tx: compat.Tracer) -> list[compat.VariableTracker]:
    """Return the exceptions that are being handled, the innermost last."""
    stack = tx.exn_vt_stack
    return [stack[position] for position in range(len(stack))]


def innermost_handled(tx: compat.Tracer) -> compat.VariableTracker | None:
    """Return the exception that is being handled; ``None`` if there is none."""
    stack = tx.exn_vt_stack
    return stack[-1] if len(stack) else None


def raised_in(tx: Any) -> compat.VariableTracker | None:
    """Return the exception that a frame has just raised or let through."""
    error: compat.VariableTracker | None = tx.exn_vt_stack._current_exception
    return error


def handling_of(tx: compat.Tracer) -> dict[str, Any]:
    """Return the fields of the stack of exceptions, the dictionary that holds them itself."""
    return vars(tx.exn_vt_stack)


def handler_of(instruction: Any) -> Any:
    """Return the handler around an instruction, with its ``target``; ``None`` for none."""
    return instruction.exn_tab_entry
