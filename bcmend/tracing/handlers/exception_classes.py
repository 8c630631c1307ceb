"""The constructors and texts of the program's exception classes.

A class of exceptions mostly calls the constructor of its base, which is in C and not traced; of
most of Python's exceptions it only sets ``args``. For the text of any exception Dynamo takes these
arguments, whatever the class makes of them.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any, Final

from bcmend.dynamo import compat, frames, handlers, hooks
from bcmend.dynamo.handlers import PASS, Answer, Call
from bcmend.dynamo.models import exceptions, methods, objects
from bcmend.dynamo.values import EXCEPTIONS, Value, constant
from bcmend.tracing.output import exception_flow

#: Exceptions whose constructor sets ``args`` and nothing else.
_PLAIN: Final = (
    BaseException, Exception, ArithmeticError, AssertionError, BufferError, EOFError,
    FloatingPointError, IndexError, KeyError, LookupError, MemoryError, NotImplementedError,
    OverflowError, RecursionError, ReferenceError, RuntimeError, TypeError, UserWarning,
    RuntimeWarning, ValueError, Warning, ZeroDivisionError,
)  # fmt: skip
_CONSTRUCTORS: Final = frozenset(kind.__init__ for kind in _PLAIN)

#: What makes a text of nothing but ``args``; some classes name the same function of C once more.
_OF_ARGUMENTS: Final = tuple(
    kind.__str__ for kind in (BaseException, KeyError, NameError, AttributeError)
)


def _construct(tx: compat.Tracer, constructor: Any, made: Any, args: list[Any]) -> bool:
    """Do what ``constructor(made, *args)`` does; ``False`` if that is not known."""
    if not (
        constructor in _CONSTRUCTORS
        and isinstance(made, compat.UserDefinedExceptionObjectVariable)
        and isinstance(made.mutation_type, compat.AttributeMutationNew)
    ):
        return False
    exceptions.set_arguments_of_object(tx.output.side_effects, made, args)
    return True


_PURPOSE: Final = "constructors and texts of the program's exceptions"


@handlers.method(compat.SuperVariable, methods.CALL_METHOD, _PURPOSE, place=1)
def _call_of_super(call: Call) -> Answer:
    """Answer the call of a method of ``super()``."""
    tx, variable, (name, args, kwargs) = call.tx, call.owner, call.args
    error = objects.object_of_super(variable)
    if name == "__init__" and not kwargs and error is not None:
        constructor = objects.method_of_super(tx, variable, name)
        if _construct(tx, constructor, error, args):
            return constant(None)
    if name == "__str__" and not (args or kwargs) and isinstance(error, EXCEPTIONS):
        return _text(tx, objects.method_of_super(tx, variable, name), error)
    return PASS


@handlers.method(compat.BuiltinVariable, methods.CALL_METHOD, _PURPOSE)
def _call_of_type(call: Call) -> Answer:
    """Answer ``ValueError.__init__(error, ...)`` and its like."""
    name, args, kwargs = call.args
    if name == "__init__" and args and not kwargs and call.owner.fn in _PLAIN:
        made, *rest = args
        if _construct(call.tx, call.owner.fn.__init__, made.realize(), rest):
            return constant(None)
    return PASS


@handlers.method(compat.SetAttrBuiltinVariable, methods.CALL_SETATTR, _PURPOSE, place=2)
def _arguments_stored(call: Call) -> Answer:
    """Have ``error.args = ...`` seen by what reads the arguments in the model."""
    owner, name, value = (each.realize() for each in call.args)
    is_args = name.is_python_constant() and name.as_python_constant() == "args"
    if is_args and type(value) is compat.TupleVariable:
        exceptions.take_arguments(owner, value.items)
    return PASS


@hooks.around(compat.BuiltinVariable, methods.CALL_STR, _PURPOSE, gate=None)
def _call_str(inner: Any, builtin: Any, tx: compat.Tracer, value: Value) -> Any:
    """Model ``str(error)``; outside of patched code, only note that the text was read."""
    if isinstance(value, EXCEPTIONS):
        if frames.covers(tx):
            return _text(tx, exceptions.class_of(value).__str__, value)
        exception_flow.note_reading(tx, value, ["__str__"])
    return inner(builtin, tx, value)


def _text_of_arguments(tx: compat.Tracer, error: Any) -> Value:
    """Return the text of an exception whatever its class makes of it."""
    text: Value
    for slot in exceptions.TEXT_SLOTS:
        text = hooks.original(getattr(compat.ExceptionVariable, slot))(error, tx)
        return text
    call_str = hooks.original(getattr(compat.BuiltinVariable, methods.CALL_STR))
    text = call_str(compat.BuiltinVariable(str), tx, error)
    return text


def _text(tx: compat.Tracer, method: Any, error: Any) -> Value:
    """Return the text that ``method`` makes of an exception."""
    if type(method) is FunctionType:
        made: Value = compat.VariableTracker.build(tx, method)
        return made.call_function(tx, [error], {})
    exception_flow.note_reading(tx, error)
    if method is KeyError.__str__ and len(arguments := exceptions.arguments_of(error)) == 1:
        return compat.BuiltinVariable(repr).call_function(tx, arguments, {})
    if method in _OF_ARGUMENTS:
        return _text_of_arguments(tx, error)
    handlers.break_graph(
        "text of an exception",
        str(error),
        f"{exceptions.class_of(error).__name__} makes its text in a way that is not traced.",
        hints=[],
    )
