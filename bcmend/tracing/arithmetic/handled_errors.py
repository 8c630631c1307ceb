"""Errors of arithmetic on numbers that vary between calls, where the program handles them.

Dynamo makes an input of a number that has varied, and computes with it as one with which nothing
fails: ``total / count`` under ``except ZeroDivisionError`` raises when the graph runs, past the
handler. So a number that may make it raise is guarded not to. Numbers out of tensors have side
exits instead.

Works round Dynamo 2.13.0 and 2.15.0; see docs/upstream.md. This can go when
``test_an_error_of_a_number_that_varies_passes_its_handler`` in
``tests/tracing/backends/test_faults_of_torch.py`` fails.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from types import BuiltinFunctionType
from typing import Any, Final

import torch

from bcmend.dynamo import compat, frames, hooks
from bcmend.dynamo.models import methods
from bcmend.dynamo.values import (
    Value,
    is_unbacked,
    kind_of_number,
    number_in,
    with_known_number,
)
from bcmend.tracing.sites import capture_mode

_DIVISIONS: Final = (
    *(operator.truediv, operator.floordiv, operator.mod, divmod),
    *(operator.itruediv, operator.ifloordiv, operator.imod),
)
_SHIFTS: Final = (operator.lshift, operator.rshift, operator.ilshift, operator.irshift)
_POWERS: Final = (operator.pow, operator.ipow, pow)


def _is_usual_power(base: Any, exponent: Any) -> bool:
    """Return whether a power is real and finite, under guards that hold of most numbers."""
    if isinstance(base, (int, torch.SymInt)) and isinstance(exponent, (int, torch.SymInt)):
        return bool(exponent >= 0)
    return bool(base > 1e-3) and bool(base < 1e3) and bool(abs(exponent) < 100)


#: Whether an operation on two numbers raises nothing.
_IS_SAFE: Final[dict[Any, Callable[[Any, Any], Any]]] = {
    **dict.fromkeys(_DIVISIONS, lambda dividend, divisor: divisor != 0),
    **dict.fromkeys(_SHIFTS, lambda number, places: places >= 0),
    **dict.fromkeys(_POWERS, _is_usual_power),
}

_FINITE: Final = sys.float_info.max
#: Functions that torch has as operators of symbolic numbers, and where they raise nothing.
_IS_SAFE_FUNCTION: Final[dict[Any, Callable[[Any], Any]]] = {
    math.sqrt: lambda number: number >= 0,
    math.log2: lambda number: number > 0,
    **dict.fromkeys((math.asin, math.acos), lambda number: abs(number) <= 1),
    **dict.fromkeys((math.sinh, math.cosh), lambda number: abs(number) < 700),
    **dict.fromkeys(
        (math.sin, math.cos, math.tan, math.floor, math.ceil),
        lambda number: abs(number) <= _FINITE,
    ),
}


@hooks.around(
    compat.TorchInGraphFunctionVariable,
    methods.CALL_FUNCTION,
    "functions of `math` that may raise in a `try`",
    place=5,
)
def _call_function(inner: Any, called: Any, tx: compat.Tracer, args: Any, kwargs: Any) -> Any:
    is_of_one = isinstance(called.value, BuiltinFunctionType) and len(args) == 1 and not kwargs
    is_safe = _IS_SAFE_FUNCTION.get(called.value) if is_of_one else None
    return inner(called, tx, _guarded(tx, is_safe, args), kwargs)


@hooks.around(
    compat.BuiltinVariable, methods.CALL_FUNCTION, "arithmetic that may raise in a `try`", place=3
)
def _call(inner: Any, called: Any, tx: compat.Tracer, args: Any, kwargs: Any) -> Any:
    is_safe = _IS_SAFE.get(called.fn) if len(args) == 2 and not kwargs else None
    return inner(called, tx, _guarded(tx, is_safe, args), kwargs)


def _guarded(tx: compat.Tracer, is_safe: Callable[..., Any] | None, args: Any) -> Any:
    """Return arguments with which nothing fails, under a guard, or which are known."""
    if is_safe is None or not frames.is_in_a_block(tx) or not capture_mode.may_be_mended(tx):
        return args
    numbers = [each.realize() for each in args]
    if not _are_guardable(numbers) or is_safe(*map(number_in, numbers)):
        return args
    return [*map(with_known_number, numbers)]


def _are_guardable(numbers: list[Value]) -> bool:
    """Return whether one at least of some numbers is an input, and the others are known."""
    return (
        None not in map(kind_of_number, numbers)
        and not any(map(is_unbacked, numbers))
        and any(isinstance(each, compat.SymNodeVariable) for each in numbers)
    )
