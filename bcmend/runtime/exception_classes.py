"""The constructors and texts of the program's exception classes.

A class of exceptions mostly calls the constructor of its base, which is in C and which Dynamo does
not trace. Of most of Python's exceptions it does no more than set ``args``. For the text of any
exception Dynamo takes these arguments, whatever the class makes of them.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any, Final

from torch._dynamo.exc import unimplemented
from torch._dynamo.variables import TupleVariable
from torch._dynamo.variables.base import AttributeMutationNew, VariableTracker
from torch._dynamo.variables.builtin import BuiltinVariable
from torch._dynamo.variables.misc import ExceptionVariable, SuperVariable
from torch._dynamo.variables.user_defined import UserDefinedExceptionObjectVariable

from bcmend.runtime import raised, substitution
from bcmend.runtime.merge import constant

__all__ = ["install"]

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
_EXCEPTIONS: Final = (ExceptionVariable, UserDefinedExceptionObjectVariable)

_DYNAMOS_TEXT: Final = BuiltinVariable.call_str
_CALL_OF_TYPE: Final = BuiltinVariable.call_method


def _construct(tx: Any, constructor: Any, made: Any, args: list[VariableTracker]) -> bool:
    """Do what ``constructor(made, *args)`` does; ``False`` if that is not known."""
    if not (
        constructor in _CONSTRUCTORS
        and isinstance(made, UserDefinedExceptionObjectVariable)
        and isinstance(made.mutation_type, AttributeMutationNew)
        and substitution.is_patched(tx) is not None
    ):
        return False
    made.exc_vt.args = list(args)
    tx.output.side_effects.store_attr(made, "args", TupleVariable(list(args)))
    return True


def _with_exceptions(before: Any) -> Any:
    """Return what calls a method of ``super()``."""

    def call_method(
        self: Any,
        tx: Any,
        name: str,
        args: list[VariableTracker],
        kwargs: dict[str, VariableTracker],
    ) -> VariableTracker:
        found: VariableTracker | None = None
        if name == "__init__" and not kwargs and self.objvar is not None:
            constructor, _ = self._resolved_getattr_and_source(tx, name)
            if _construct(tx, constructor, self.objvar, args):
                return constant(None)
        if name == "__str__" and not (args or kwargs) and isinstance(self.objvar, _EXCEPTIONS):
            method, _ = self._resolved_getattr_and_source(tx, name)
            found = _text(tx, method, self.objvar)
        return before(self, tx, name, args, kwargs) if found is None else found

    return call_method


def _call_of_type(
    self: Any,
    tx: Any,
    name: str,
    args: list[VariableTracker],
    kwargs: dict[str, VariableTracker],
) -> VariableTracker:
    if name == "__init__" and args and not kwargs and self.fn in _PLAIN:
        made, *rest = args
        if _construct(tx, self.fn.__init__, made.realize(), rest):
            return constant(None)
    return _CALL_OF_TYPE(self, tx, name, args, kwargs)


def _with_own_text(before: Any) -> Any:
    """Return what answers ``str(value)``."""

    def text(builtin: Any, tx: Any, value: VariableTracker) -> VariableTracker | None:
        found = None
        if isinstance(value, _EXCEPTIONS):
            found = _text(tx, value.exc_type.__str__, value)
        return before(builtin, tx, value) if found is None else found

    return text


def _text(tx: Any, method: Any, error: Any) -> VariableTracker | None:
    """Return the text that ``method`` makes of an exception; ``None`` outside of patched code."""
    if substitution.is_patched(tx) is None:
        raised.note_reading(tx, error, ["__str__"])
        return None
    if type(method) is FunctionType:
        found: VariableTracker = VariableTracker.build(tx, method).call_function(tx, [error], {})
        return found
    raised.note_reading(tx, error)
    if method is KeyError.__str__ and len(error.args) == 1:
        return BuiltinVariable(repr).call_function(tx, list(error.args), {})
    if method in _OF_ARGUMENTS:
        return _DYNAMOS_TEXT(BuiltinVariable(str), tx, error)
    unimplemented(
        gb_type="bcmend: text of an exception",
        context=str(error),
        explanation=f"{error.exc_type.__name__} makes its text in a way that is not traced.",
        hints=[],
    )


def install() -> None:
    """Tell Dynamo what these constructors do, in patched code."""
    SuperVariable.call_method = _with_exceptions(SuperVariable.call_method)  # type: ignore[method-assign]
    BuiltinVariable.call_method = _call_of_type  # type: ignore[method-assign]
    BuiltinVariable.call_str = _with_own_text(BuiltinVariable.call_str)  # type: ignore[method-assign]
