"""``~n``, ``n.bit_length()``, ``v.is_integer()`` and ``v.real`` of numbers out of tensors.

Torch has none of them of symbolic numbers: it looks for the method where the graph runs, or asks
for the number itself. A part of a number it leaves to the code behind the graph, and takes it for
something that no number is equal to.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from bcmend.dynamo import compat, handlers, hooks
from bcmend.dynamo.handlers import PASS, Answer
from bcmend.dynamo.models import methods
from bcmend.dynamo.values import (
    Value,
    constant,
    is_unbacked,
    kind_of_number,
    with_known_number,
)
from bcmend.tracing.arithmetic import float_tests
from bcmend.tracing.sites import capture_mode

_TYPES: Final[dict[tuple[Any, str], torch.dtype]] = {
    (float, "is_integer"): torch.bool,
    (int, "bit_length"): torch.int64,
    (int, "bit_count"): torch.int64,
}
_ITSELF: Final[dict[type, tuple[str, ...]]] = {float: ("real",), int: ("real", "numerator")}
_CONSTANTS: Final[dict[type, dict[str, Any]]] = {
    float: {"imag": 0.0},
    int: {"imag": 0, "denominator": 1},
}
_INVERT: Final = (operator.invert, operator.inv)


def _run(
    name: str, numbers: Sequence[torch.Tensor], dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what a method of a number gives, and that it has not raised."""
    found = getattr(numbers[0].item(), name)()
    return torch.tensor(found, dtype=dtype), torch.tensor(False)


METHOD: Final = float_tests.defined(
    "number_method(str name, Tensor[] numbers, ScalarType dtype) -> (Tensor, Tensor)", _run
)


@handlers.method(compat.SymNodeVariable, methods.CALL_METHOD, "methods of numbers out of tensors")
def _called(call: handlers.Call) -> Answer:
    number, (name, args, kwargs) = call.owner, call.args
    dtype = _TYPES.get((kind_of_number(number), name))
    is_known = dtype is not None and is_unbacked(number) and not args and not kwargs
    if not is_known or not capture_mode.in_mended_code(call.tx):
        return PASS
    return float_tests.called_in_the_graph(call.tx, None, METHOD, name, [number], dtype) or PASS


@handlers.attribute_read("parts of symbolic numbers", place=4)
def _part_read(read: Callable[[Any], Any], tx: compat.Tracer, owner: Any, default: Any) -> Any:
    """Read a part of a number, which is the number itself or a constant."""
    found = read(owner)
    if type(found) is not compat.GetAttrVariable:  # to ask by `isinstance` would realize it
        return found
    number = owner.realize()
    kind = kind_of_number(number)
    if kind is None:
        return found
    if found.name in _CONSTANTS[kind]:
        return constant(_CONSTANTS[kind][found.name])
    return number if found.name in _ITSELF[kind] else found


_OF_BUILTINS: Final = "`~` and `round` of symbolic numbers"
#: What the arguments of ``round`` are called.
_OF_ROUND: Final = ("number", "ndigits")


@hooks.around(compat.BuiltinVariable, methods.CALL_FUNCTION, _OF_BUILTINS, place=2)
def _computed(inner: Any, called: Any, tx: compat.Tracer, args: Any, kwargs: Any) -> Any:
    if called.fn is round:
        args, kwargs = _with_known_digits(tx, args, kwargs)
    if called.fn not in _INVERT or len(args) != 1 or not capture_mode.may_be_mended(tx):
        return inner(called, tx, args, kwargs)
    number = args[0].realize()
    if not isinstance(number, compat.SymNodeVariable) or kind_of_number(number) is not int:
        return inner(called, tx, args, kwargs)
    difference = compat.BuiltinVariable(operator.sub)
    return difference.call_function(tx, [constant(-1), number], {})


def _with_known_digits(tx: compat.Tracer, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Return the arguments of ``round`` with digits that are known: torch has no others."""
    given = {**dict(zip(_OF_ROUND, args, strict=False)), **kwargs}
    if given.keys() != {*_OF_ROUND}:
        return args, kwargs
    number, digits = (given[name].realize() for name in _OF_ROUND)
    if capture_mode.may_be_mended(tx):
        digits = with_known_number(digits)
        args, kwargs = [number, digits], {}
    _require_same(number, digits)
    return args, kwargs


def _require_same(number: Value, digits: Value) -> None:
    """Break the graph at ``round(n, -2)`` of an integer, which torch takes for ``n``."""
    if not isinstance(number, compat.SymNodeVariable) or kind_of_number(number) is not int:
        return
    known = digits.as_python_constant() if digits.is_python_constant() else -1
    if known is not None and not (type(known) is int and known >= 0):
        handlers.break_graph(
            "an integer rounded to tens",
            f"round({number}, {digits})",
            "torch takes a symbolic integer for rounded to any number of digits.",
        )
