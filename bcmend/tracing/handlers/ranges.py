"""Items of ranges, and what is in them, where the numbers of one vary between calls.

Dynamo computes an item of numbers that it takes for known, and gives an integer for whether a
number is in a range. So the numbers are known there, under guards.

The latter is so in 2.13.0; this part can go when
``test_a_number_in_a_range_is_an_integer`` in
``tests/tracing/backends/test_faults_of_torch.py`` fails.
"""

from __future__ import annotations

from typing import Any, Final

from bcmend.dynamo import compat, handlers, hooks
from bcmend.dynamo.handlers import PASS, Answer, Call
from bcmend.dynamo.models import methods
from bcmend.dynamo.values import Value, constant, is_unbacked, with_known_number

#: The releases of torch from which on these do not hold, and what works round them can go.
UNTIL: Final = {
    "test_a_number_in_a_range_is_an_integer": "2.14",
}
_PURPOSE: Final = "items of ranges of symbolic numbers"


@hooks.around(compat.RangeVariable, methods.SUBSCRIPT, _PURPOSE)
def _item(inner: Any, owner: Any, tx: compat.Tracer, place: Value) -> Value:
    found: Value = inner(_with_known_numbers(owner), tx, with_known_number(place.realize()))
    return found


@hooks.around(compat.RangeVariable, methods.CONTAINS, _PURPOSE)
def _contains(inner: Any, owner: Any, tx: compat.Tracer, item: Value) -> Value:
    found: Value = inner(_with_known_numbers(owner), tx, with_known_number(item.realize()))
    return constant(bool(found.as_python_constant()))


def _with_known_numbers(owner: Any) -> Any:
    if any(isinstance(each, compat.SymNodeVariable) for each in owner.items):
        return compat.RangeVariable([*map(with_known_number, owner.items)])
    return owner


@handlers.method(compat.BuiltinVariable, methods.CALL_RANGE, _PURPOSE, place=1)
def _made(call: Call) -> Answer:
    """Raise what Python raises of a step of zero, at which Dynamo fails."""
    if len(call.args) == 3 and not is_unbacked(step := call.args[2].realize()):
        known = with_known_number(step)
        if known.is_python_constant() and known.as_python_constant() == 0:
            message = "range() arg 3 must not be zero"
            compat.raise_observed_exception(ValueError, call.tx, args=[message])
    return PASS
