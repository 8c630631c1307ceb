"""Operators on an object of the program and a tensor, as in ``quaternion * scale``.

Dynamo writes every operator on a tensor into the graph, and stops where the other operand is no
value of a graph. Python calls the methods of both operands in turn; those of a tensor leave such an
object to the other operand.
"""

from __future__ import annotations

import inspect
import operator
from types import FunctionType
from typing import Any, Final

import torch

from bcmend.dynamo import compat, hooks
from bcmend.dynamo.models import methods
from bcmend.dynamo.models.objects import class_of
from bcmend.dynamo.values import Value
from bcmend.tracing.merging.lazy_phi import LazyPhi
from bcmend.tracing.substitutes.autograd_leaf import is_plain

_ARITHMETIC: Final = (
    "add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "and",
    "or", "xor",
)  # fmt: skip


def _function(name: str) -> Any:
    return getattr(operator, name, None) or getattr(operator, f"{name}_")


#: The methods that Python asks for: of the left operand, of the right one; whether it is the left.
_ASKED: Final[dict[Any, tuple[tuple[bool, str], ...]]] = {
    **{_function(name): ((True, f"__{name}__"), (False, f"__r{name}__")) for name in _ARITHMETIC},
    **{
        _function(f"i{name}"): (
            (True, f"__i{name}__"), (True, f"__{name}__"), (False, f"__r{name}__"),
        )
        for name in _ARITHMETIC
    },
}  # fmt: skip
_ASKED[pow] = _ASKED[operator.pow]

#: Classes of which tensors take an object for an operand.
_OPERANDS: Final = (bool, int, float, complex, torch.Tensor, torch.SymInt, torch.SymFloat)


@hooks.around(compat.BuiltinVariable, methods.INSERT_OPERATION, "`object * tensor`", place=3)
def _operation(inner: Any, variable: Any, tx: compat.Tracer, arguments: Any, keywords: Any) -> Any:
    """Call the methods of an object of the program, where the other operand is a tensor."""
    if variable.fn in _ASKED and len(arguments) == 2 and not keywords:
        operands = [each.realize() for each in arguments]
        places = [at for at, each in enumerate(operands) if _is_of_the_program(each)]
        if len(places) == 1 and isinstance(operands[1 - places[0]], compat.TensorVariable):
            found = _computed(tx, variable.fn, operands, places[0])
            if found is not None:
                return found
    return inner(variable, tx, arguments, keywords)


def _is_of_the_program(value: Value) -> bool:
    """Return whether a value is an object that tensors do not know as an operand."""
    if not isinstance(value, compat.UserDefinedObjectVariable):
        return False
    kind = class_of(value)
    module = kind.__mro__[-2].__module__
    return not (
        issubclass(kind, _OPERANDS) or module == "numpy" or hasattr(kind, "__torch_function__")
    )


def _computed(tx: compat.Tracer, function: Any, operands: list[Any], place: int) -> Value | None:
    """Return the outcome of an operator; ``None`` where it is not known."""
    for is_left, name in _ASKED[function]:
        own, other = operands if is_left else operands[::-1]
        if own is not operands[place]:
            if not is_plain(own):
                return None
            continue  # a tensor leaves it to the other operand
        method = inspect.getattr_static(class_of(own), name, None)
        if method is None:
            continue
        if not isinstance(method, FunctionType) or name in getattr(own.value, "__dict__", ()):
            return None
        result: Value = own.call_method(tx, name, [other], {})
        if not _may_decline(result):
            return result
        if isinstance(result, LazyPhi):
            result.ask()
    return None


def _may_decline(result: Value) -> bool:
    """Return whether a method has given ``NotImplemented``, or may have on one side."""
    if isinstance(result, LazyPhi):
        return not result.sides or any(map(_may_decline, result.sides))
    return isinstance(result, compat.ConstantVariable) and result.value is NotImplemented
