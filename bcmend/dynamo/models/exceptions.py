"""Models of exceptions of the program, and what the translator of a frame knows of them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import CodeType
from typing import Any, Final

from bcmend.dynamo import compat
from bcmend.dynamo.models import methods

#: Files and functions of Dynamo that have Python evaluate operators and functions on constants.
EVALUATING: Final = frozenset(
    "builtin.py constant.py generic_int generic_float pynumber_int pynumber_float".split()
)
#: The code by which Dynamo raises an exception of its models' own making.
RAISING: Final[CodeType] = compat.raise_observed_exception.__code__

#: Fields of exceptions of which nothing that the program can see depends.
NOTES: Final = frozenset(
    "python_stack source_location dict_vt _looked_up_attrs _subobj_from_class".split()
)
#: Attributes that every exception has, which are fields of its model.
OF_PYTHON: Final = frozenset(
    "args __context__ __cause__ __suppress_context__ __traceback__".split()
)
#: Fields of exceptions that their text is made of, but for attributes of the program.
IN_TEXTS: Final = frozenset("exc_type args value _attrs".split())

_ARE_FIELDS: Final = hasattr(compat.ExceptionVariable, methods.FIND_FIELD)
#: The methods that read attributes of exceptions; the last of their arguments is a name.
READERS: Final = [
    (kind, methods.FIND_FIELD if _ARE_FIELDS else methods.GETATTR)
    for kind in (compat.ExceptionVariable, compat.UserDefinedExceptionObjectVariable)
    if kind is compat.ExceptionVariable or not issubclass(kind, compat.ExceptionVariable)
]
#: The methods that make a text of an exception without a call of ``str``.
TEXT_SLOTS: Final = [methods.STR] if hasattr(compat.ExceptionVariable, methods.STR) else []


def class_of(error: Any) -> Any:
    """Return the class of an exception."""
    return error.exc_type


def arguments_of(error: Any) -> list[compat.VariableTracker]:
    """Return what the ``args`` of an exception hold."""
    # Of an error of Python's own, raised on constants, Dynamo keeps the very values.
    return [
        each if isinstance(each, compat.VariableTracker) else compat.ConstantVariable.create(each)
        for each in error.args
    ]


class MergedArguments(list[Any]):
    """The ``args`` of an exception behind the branch in which it was made; ``in_arm`` were there.

    They are the same to the program: only the models are of another graph.
    """

    def __init__(self, arguments: list[compat.VariableTracker], in_arm: list[Any]) -> None:
        super().__init__(arguments)
        self.in_arm = in_arm


def set_merged_arguments(error: Any, arguments: list[compat.VariableTracker]) -> None:
    """Give an exception of Python's own class its ``args`` as they are behind a branch."""
    error.args = MergedArguments(arguments, error.args)


def set_arguments_of_object(
    effects: compat.SideEffects, error: Any, arguments: list[compat.VariableTracker]
) -> None:
    """Give an exception of a class of the program other ``args``, as its constructor does."""
    getattr(error, "exc_vt", error).args = list(arguments)  # a model of its own in torch 2.13
    effects.store_attr(error, "args", compat.TupleVariable(list(arguments)))


def take_arguments(error: Any, arguments: list[compat.VariableTracker]) -> None:
    """Give the model inside that of an exception of the program, in torch 2.13, other ``args``.

    The model inside is another one from then on: only that it is one is remembered of an arm.
    """
    inside: Any = vars(error).get("_base_vt")
    if isinstance(inside, compat.ExceptionVariable):
        error._base_vt = copy.copy(inside)
        error._base_vt.args = list(arguments)


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


def remember_handling(tx: compat.Tracer) -> Callable[[], None]:
    """Return what puts back which exceptions are being handled, as it is now."""
    fields = vars(tx.exn_vt_stack)
    before = {
        name: list(value) if isinstance(value, list) else value for name, value in fields.items()
    }
    parts, part = [], fields["_exc_stack"]
    while not isinstance(part, list) and part is not None:  # one for each generator that runs
        parts.append((part, list(part.items), part.prev))
        part = part.prev

    def put_back() -> None:
        fields.update(before)
        for one, items, below in parts:
            one.items[:], one.prev = items, below

    return put_back


def held_by_generator(frame: Any) -> list[compat.VariableTracker]:
    """Return the list of exceptions that a generator has of its own; in torch 2.13 it has none."""
    own = getattr(frame, "gi_exc_state", None)
    return [] if own is None else own.items


def handler_of(instruction: Any) -> Any:
    """Return the handler around an instruction, with its ``target``; ``None`` for none."""
    return instruction.exn_tab_entry
