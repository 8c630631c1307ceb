"""``min`` and ``max`` of numbers out of tensors, as Python has them.

Python returns one of its arguments, the first unless a later one is smaller or larger: NaN is
neither, 0.0 and -0.0 are equal, and of an integer and a float the result has the type of the one
that is returned. Symbolic numbers have one type, NaN wins, and a back end picks a zero. So floats
are compared as tensors; of an integer and a float both are kept, as of a branch whose sides have no
common form.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Final

import torch

from bcmend.dynamo import compat, frames, fx_graph, handlers
from bcmend.dynamo.handlers import PASS, Answer, Call
from bcmend.dynamo.models import methods
from bcmend.dynamo.values import Value, constant, is_unbacked
from bcmend.tracing.merging.lazy_phi import GatedPhi
from bcmend.tracing.numbers import float_tensors, predicates, scalars
from bcmend.tracing.search.assumptions import Claim
from bcmend.tracing.sites import capture_mode, site_table

_KINDS: Final = {torch.SymFloat: float, torch.SymInt: int, torch.SymBool: bool}
_BEYOND: Final = {min: operator.lt, max: operator.gt}


@handlers.method(
    compat.BuiltinVariable, methods.CALL_MIN_MAX, "`min` and `max` of numbers out of tensors"
)
def _pick(call: Call) -> Answer:
    """Answer which of two values is the smaller, or the larger one."""
    one, other = (None if each is None else each.realize() for each in call.args)
    if one is None or other is None or not capture_mode.in_mended_code(call.tx):
        return PASS
    if any(isinstance(each, GatedPhi) or is_unbacked(each) for each in (one, other)):
        return _extreme(call.tx, call.owner.fn, one, other) or PASS
    return PASS


def _extreme(tx: compat.Tracer, function: Any, one: Value, other: Value) -> Value | None:
    """Return which of two values is the smaller, or the larger; ``None`` where torch knows."""
    if isinstance(one, GatedPhi):
        return _of_both(tx, one, [(side, other) for side in one.sides], function)
    if isinstance(other, GatedPhi):
        return _of_both(tx, other, [(one, side) for side in other.sides], function)
    kinds = _kind(one), _kind(other)
    if None in kinds or kinds == (int, int):
        return None
    if kinds == (float, float) and not (_is_known(one) and _is_known(other)):
        return _picked(tx, function, one, other)
    if _is_known(one) and _is_known(other):
        return constant(function(one.as_python_constant(), other.as_python_constant()))
    return _either(tx, function, one, other)


def _of_both(
    tx: compat.Tracer, phi: GatedPhi, pairs: Sequence[tuple[Value, Value]], function: Any
) -> Value | None:
    """Return the extremes of the sides of a phi, as its sides."""
    sides = [
        _extreme(tx, function, one.realize(), other.realize())
        or Value.build(tx, function).call_function(tx, [one, other], {})
        for one, other in pairs
    ]
    return GatedPhi(phi.site, phi.form, phi.output, sides, predicate=phi.predicate)


def _either(tx: compat.Tracer, function: Any, one: Value, other: Value) -> Value:
    """Return whichever is the extreme of two numbers that differ in type."""
    site = site_table.site_being_traced(tx, frames.resumed(tx.f_code), function.__name__, "number")
    policy = frames.mark_over(tx)
    is_beyond = Value.build(tx, _BEYOND[function]).call_function(tx, [other, one], {}).realize()
    if is_beyond.is_python_constant():
        return other if is_beyond.as_python_constant() else one
    is_left = policy is None or site_table.is_left_alone(site, tx, policy)
    if is_left or not site.holds(Claim.READ_APART, 0):
        return other if _known_truth(tx, function, is_beyond) else one
    predicate = predicates.as_predicate(tx, is_beyond)
    site.mended("two forms", "an integer or a float, as the data decide")
    return GatedPhi(site, 0, tx.output, [other, one], predicate=predicate)


def _known_truth(tx: compat.Tracer, function: Any, is_beyond: Any) -> bool:
    """Return the truth of a comparison of numbers of which the trace knows the values."""
    try:
        return bool(is_beyond.evaluate_expr(tx.output))
    except compat.UserError:  # the numbers may be had in front of the graph, where it says of which
        handlers.break_graph(
            "an extreme of numbers of two types",
            function.__name__,
            "Which type the result has depends on the data, and code that reads it could not be"
            " traced for both.",
            hints=["Give both numbers one type, as in `max(0.0, x.item())`."],
        )


def _kind(value: Any) -> type | None:
    if isinstance(value, compat.SymNodeVariable):
        return _KINDS[type(value.sym_num)]
    return type(value.value) if isinstance(value, compat.ConstantVariable) else None


def _picked(tx: compat.Tracer, function: Any, one: Any, other: Any) -> Value | None:
    first, second = _double(tx, one), _double(tx, other)
    is_second = fx_graph.function(tx, _BEYOND[function], second, first)
    return scalars.take(tx, fx_graph.function(tx, torch.where, is_second, second, first))


def _is_known(value: Value) -> bool:
    return isinstance(value, compat.ConstantVariable)


def _double(tx: compat.Tracer, value: Any) -> Any:
    """Return a float as an operand of an operator of the graph."""
    return (
        value.as_python_constant()
        if _is_known(value)
        else float_tensors.as_tensor(tx, value.as_proxy())
    )
