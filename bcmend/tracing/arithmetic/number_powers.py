"""Powers of numbers out of tensors.

Of a negative number ``v ** 0.5`` is complex, ``0.0 ** -1`` and ``10.0 ** 400`` raise, and what
``10 ** n`` is depends on the sign of ``n``. Back ends that trace the graph again compute with
symbolic numbers, to which a power is a real number: NaN, infinite or rounded otherwise. So the
graph gets an operator that computes it as Python does, and a side exit is taken where the result
is none that a graph has. Natural powers of integers are left to torch.

Works round ``FloatPow`` and ``PowByNatural`` (torch/utils/_sympy/functions.py); reproduced on
2.13.0, no issue is known.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, Final

import torch

from bcmend.dynamo import compat, handlers
from bcmend.dynamo.models.real_numbers import expression_of
from bcmend.dynamo.values import Value, is_unbacked, kind_of_number, number_in
from bcmend.tracing.arithmetic import float_tests
from bcmend.tracing.output import deferred_exceptions
from bcmend.tracing.sites import capture_mode, site_table

_KINDS: Final = {int: torch.int64, float: torch.float64}
_BITS: Final = 63


def _power(name: str, base: Any, exponent: Any) -> Any:
    """Return a power; ``None`` where Python raises, or makes an integer of more than 64 bits."""
    is_whole = isinstance(base, int) and isinstance(exponent, int) and exponent >= 0
    if is_whole and exponent * math.log2(abs(base) or 1) >= _BITS:
        return None  # which may take long to compute, too
    try:
        return getattr(operator, name)(base, exponent)
    except ArithmeticError:
        return None


def _run(
    name: str, numbers: Sequence[torch.Tensor], dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a power of two numbers, and whether it is to be had in plain Python."""
    found = _power(name, *(each.item() for each in numbers))
    is_other = type(found) not in _KINDS or _KINDS[type(found)] is not dtype
    return torch.tensor(0 if is_other else found, dtype=dtype), torch.tensor(is_other)


POWER: Final = float_tests.defined(
    "power(str name, Tensor[] numbers, ScalarType dtype) -> (Tensor, Tensor)", _run
)


def power_of(tx: compat.Tracer, numbers: Sequence[Value]) -> Value | None:
    """Return a power of two numbers, one out of a tensor; ``None`` where it is left to torch."""
    if not any(map(is_unbacked, numbers)) or not capture_mode.in_mended_code(tx):
        return None
    kinds = [kind_of_number(each) for each in numbers]
    if None in kinds or _is_natural(numbers, kinds):
        return None
    site = site_table.number_being_traced(tx, "power")
    if site is None or not deferred_exceptions.can_exit(tx, site):
        _require_natural(numbers, kinds)
        return None
    kind = int if kinds == [int, int] and not _is_negative(numbers[1]) else float
    return float_tests.called_in_the_graph(
        tx, site, POWER, operator.pow.__name__, numbers, _KINDS[kind]
    )


def _is_natural(numbers: Sequence[Value], kinds: Sequence[type | None]) -> bool:
    is_whole = kinds == [int, int] and numbers[1].is_python_constant()
    return is_whole and not _is_negative(numbers[1])


def _require_natural(numbers: Sequence[Value], kinds: Sequence[type | None]) -> None:
    """Break the graph at a power of integers, which torch takes for an integer."""
    if kinds == [int, int] and not compat.statically_known_true(number_in(numbers[1]) >= 0):
        handlers.break_graph(
            "a power of an integer out of a tensor",
            f"{numbers}",
            "It is an integer or a fraction, as the sign of the exponent is.",
        )


def _is_negative(number: Any) -> bool:
    """Return whether an exponent is negative, or written as ``-n``, which is taken for it."""
    if number.is_python_constant():
        return bool(number.as_python_constant() < 0)
    return bool(expression_of(number.sym_num).could_extract_minus_sign())
