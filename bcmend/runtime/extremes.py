"""``min`` and ``max`` of numbers out of tensors, as Python has them.

Python returns one of its arguments, the first unless a later one is smaller or larger: NaN is
neither, 0.0 and -0.0 are equal, and of an integer and a float the result has the type of the one
that is returned. Symbolic numbers have one type, NaN wins, and a back end picks a zero. So floats
are compared as tensors; of an integer and a float nobody knows the type before the graph runs.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch._dynamo.exc import unimplemented
from torch._dynamo.variables import BuiltinVariable, ConstantVariable
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.tensor import SymNodeVariable
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from bcmend.runtime import calls, doubles, scalars

__all__ = ["install"]

_KINDS = {torch.SymFloat: float, torch.SymInt: int, torch.SymBool: bool}


def _with_python_order(before: Any) -> Any:
    """Return what picks one of two values."""

    def pick(self: Any, tx: Any, a: Any, b: Any) -> VariableTracker | None:
        one, other = (None if each is None else each.realize() for each in (a, b))
        if any(map(_is_of_data, (one, other))) and scalars.may_take(tx):
            kinds = _kind(one), _kind(other)
            if kinds == (float, float):
                return _picked(tx, self.fn, one, other)
            if None not in kinds and (kinds[0] is not kinds[1] or bool in kinds):
                _break(self.fn)
        found: VariableTracker | None = before(self, tx, a, b)
        return found

    return pick


def _is_of_data(value: Any) -> bool:
    return isinstance(value, SymNodeVariable) and bool(free_unbacked_symbols(value.sym_num))


def _kind(value: Any) -> type | None:
    if isinstance(value, SymNodeVariable):
        return _KINDS[type(value.sym_num)]
    return type(value.value) if isinstance(value, ConstantVariable) else None


def _picked(tx: Any, function: Any, one: Any, other: Any) -> VariableTracker | None:
    first, second = (_double(tx, each) for each in (one, other))
    is_second = calls.function(
        tx, operator.gt if function is max else operator.lt, second, first
    ).as_proxy()
    return scalars.take(tx, calls.function(tx, torch.where, is_second, second, first))


def _double(tx: Any, value: Any) -> Any:
    """Return a float as what an operator of the graph takes for it."""
    if isinstance(value, ConstantVariable):
        return value.value
    return doubles.as_tensor(tx, value.as_proxy()).as_proxy()


def _break(function: Any) -> None:
    unimplemented(
        gb_type="bcmend: an extreme of numbers of two types",
        context=function.__name__,
        explanation="Which type the result has depends on the data.",
        hints=["Give both numbers one type, as in `max(0.0, x.item())`."],
    )


def install() -> None:
    """Let Dynamo ask here first."""
    BuiltinVariable._call_min_max_binary = _with_python_order(  # type: ignore[method-assign]
        BuiltinVariable._call_min_max_binary
    )
