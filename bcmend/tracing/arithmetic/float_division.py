"""``//`` and ``%`` of floating numbers out of tensors, ``/`` in loops, ``divmod`` of symbolic ones.

Torch has both of integers. Of floats ``v // 0.1`` is ``floor(v / 0.1)`` to it, 10.0 for 1.0 where
Python gives 9.0, and ``v % 1`` is a symbolic integer, which is zero. Back ends that trace the
graph again compute with these. So the graph gets an operator that divides as Python does.

A symbolic ``/`` raises where the graph runs, which the turns of a loop must not do: the backward of
their operator may make one that eager execution does not make. There it is that operator as well.

Dynamo has no ``divmod`` of symbolic numbers: it is the quotient and the remainder.

Works round ``FloorDiv`` and ``PythonMod`` (torch/utils/_sympy/functions.py); reproduced on 2.13.0,
no issue is known.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from bcmend.dynamo import compat, hooks
from bcmend.dynamo.models import methods
from bcmend.dynamo.values import Value, is_unbacked, kind_of_number
from bcmend.tracing.arithmetic import float_tests
from bcmend.tracing.output import deferred_exceptions
from bcmend.tracing.sites import capture_mode, nesting_limits, site_table

_FUNCTIONS: Final[dict[str, Callable[[Any, Any], float]]] = {
    methods.FLOOR_DIVISION_SLOT: operator.floordiv,
    methods.REMAINDER_SLOT: operator.mod,
    methods.TRUE_DIVISION_SLOT: operator.truediv,
}


def _run(slot: str, numbers: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what Python gives for two numbers, and whether it raises."""
    dividend, divisor = (each.item() for each in numbers)
    found = _FUNCTIONS[slot](dividend, divisor) if divisor else math.nan
    return torch.tensor(found, dtype=torch.float64), torch.tensor(not divisor)


DIVISION: Final = float_tests.defined(
    "float_division(str slot, Tensor[] numbers) -> (Tensor, Tensor)", _run
)


@hooks.around(
    compat.object_protocol,
    methods.BINARY_OPERATION,
    "quotients and remainders of floats out of tensors",
    gate=hooks.first,
)
def _divided(inner: Any, tx: compat.Tracer, v: Any, w: Any, op_slot: str) -> Any:
    if op_slot not in _FUNCTIONS or not capture_mode.in_mended_code(tx):
        return inner(tx, v, w, op_slot)
    numbers = [v.realize(), w.realize()]
    is_true = op_slot == methods.TRUE_DIVISION_SLOT
    if not (_raises_in_a_turn(tx, numbers) if is_true else _are_numbers(numbers)):
        return inner(tx, v, w, op_slot)
    site = None
    if not numbers[1].is_python_constant():
        site = site_table.number_being_traced(tx, f"float.{_FUNCTIONS[op_slot].__name__}")
        if site is None or not deferred_exceptions.can_exit(tx, site):
            return inner(tx, v, w, op_slot)
    found = float_tests.called_in_the_graph(tx, site, DIVISION, op_slot, numbers)
    return found or inner(tx, v, w, op_slot)


def _are_numbers(operands: Sequence[Value]) -> bool:
    """Return whether two numbers are divided, one at least a float, and one out of a tensor."""
    known = [each.as_python_constant() for each in operands if each.is_python_constant()]
    symbolic = [each.sym_num for each in operands if isinstance(each, compat.SymNodeVariable)]
    is_float = any(isinstance(each, (float, torch.SymFloat)) for each in (*known, *symbolic))
    is_constant_zero = operands[1].is_python_constant() and not operands[1].as_python_constant()
    return (
        len(known) + len(symbolic) == len(operands)
        and is_float
        and any(map(is_unbacked, operands))
        and not is_constant_zero
    )


def _raises_in_a_turn(tx: compat.Tracer, operands: Sequence[Value]) -> bool:
    """Return whether a turn of a loop divides numbers by one out of a tensor, which may be zero."""
    if not nesting_limits.ITERATIONS.of(tx.output) or None in map(kind_of_number, operands):
        return False
    divisor: Any = operands[1]
    return is_unbacked(divisor) and not compat.statically_known_true(divisor.sym_num != 0)


@hooks.around(compat.BuiltinVariable, methods.CALL_FUNCTION, "`divmod` of symbolic numbers")
def _call(inner: Any, called: Any, tx: compat.Tracer, args: Any, kwargs: Any) -> Any:
    is_of_two = called.fn is divmod and len(args) == 2 and not kwargs
    if not is_of_two or not capture_mode.may_be_mended(tx):
        return inner(called, tx, args, kwargs)
    numbers = [each.realize() for each in args]
    known = (isinstance(each, compat.SymNodeVariable) for each in numbers)
    is_constant_zero = numbers[1].is_python_constant() and not numbers[1].as_python_constant()
    if is_constant_zero or not any(known) or None in map(kind_of_number, numbers):
        return inner(called, tx, args, kwargs)
    parts = (operator.floordiv, operator.mod)
    return compat.TupleVariable(
        [compat.BuiltinVariable(each).call_function(tx, numbers, {}) for each in parts]
    )
