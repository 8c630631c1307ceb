"""Floating numbers, which torch writes as the real numbers of sympy.

They may be NaN or infinite, and are rounded, so that what sympy finds need not hold of them.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import sympy
import torch

from bcmend.dynamo import compat

#: Comparisons that do not hold, and that hold, where a number is NaN.
_FALSE_OF_NAN: Final = frozenset([operator.lt, operator.le, operator.gt, operator.ge, operator.eq])
_TRUE_OF_NAN: Final = frozenset([operator.ne])


def expression_of(number: Any) -> Any:
    """Return a symbolic number as torch writes it, and a constant as sympy does."""
    is_symbolic = isinstance(number, (torch.SymFloat, torch.SymInt, torch.SymBool))
    return number.node.expr if is_symbolic else sympy.sympify(number)


def floats_in(expression: Any) -> set[Any]:
    """Return the floating numbers that an expression has, which may be NaN.

    Not those of which it has integers alone: making one of NaN or infinity is an error.
    """
    found = {each for each in compat.free_unbacked_symbols(expression) if not each.is_integer}
    return found & _outside_of_integers(expression_of(expression)) if found else found


def _outside_of_integers(expression: Any) -> set[Any]:
    """Return the symbols of an expression that are in no part of it that is an integer."""
    if getattr(expression, "is_integer", None):
        return set()
    found = {expression} if isinstance(expression, sympy.Symbol) else set()
    return found.union(*map(_outside_of_integers, getattr(expression, "args", ())))


def rules_out_nan(comparison: Any, truth: bool) -> bool:
    """Return whether a comparison has come out as it does not where a number is NaN.

    To sympy ``x >= 1`` is what ``x < 1`` is not. With NaN neither holds.
    """
    return comparison in (_FALSE_OF_NAN if truth else _TRUE_OF_NAN)


@dataclass(frozen=True, slots=True)
class Decided:
    """A truth that has come out: asked again it is the same, and nothing else follows from it."""

    expression: Any
    truth: bool


def decided(expression: Any, facts: Iterable[Any]) -> Any:
    """Return the truth of an expression that has come out before; else ``None``."""
    found = (each for each in facts if isinstance(each, Decided) and each.expression == expression)
    known = next(found, None)
    return None if known is None else sympy.sympify(known.truth)


def is_of_infinity(expression: Any) -> bool:
    """Return whether an expression has infinity in it, of which torch has no bounds."""
    return isinstance(expression, sympy.Basic) and expression.has(sympy.oo, -sympy.oo)


def is_doubtful(expression: Any, facts: Iterable[Any]) -> bool:
    """Return whether what sympy finds of an expression where ``facts`` hold may be wrong.

    It is right of floating numbers themselves where a comparison has ruled out that they are NaN,
    and of nothing that is computed from them: that is NaN where infinity is subtracted from itself,
    and it is rounded.
    """
    floats = floats_in(expression)
    if not floats:
        return False
    if not floats <= {each for fact in facts for each in compat.free_unbacked_symbols(fact)}:
        return True
    return any(side.args and not side.is_number for side in _sides(expression))


def _sides(expression: Any) -> list[Any]:
    """Return what is compared in an expression."""
    if isinstance(expression, sympy.logic.boolalg.BooleanFunction):
        return [each for part in expression.args for each in _sides(part)]
    return list(expression.args)


@functools.lru_cache(maxsize=1024)
def parts_of(expression: Any) -> int:
    """Return how many numbers and symbols an expression has, without those that change a sign."""
    if not expression.args:
        return 1
    if expression.is_Pow and expression.exp.is_Integer and expression.exp > 0:
        return int(expression.exp) * parts_of(expression.base)
    changes_sign = expression.is_Mul and -1 in expression.args
    return sum(map(parts_of, expression.args)) - changes_sign
