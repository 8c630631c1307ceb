"""``min`` and ``max`` of numbers out of tensors, as Python has them.

Python returns one of its arguments, the first unless a later one is smaller or larger: NaN is
neither, 0.0 and -0.0 are equal, and of an integer and a float the result has the type of the one
that is returned. Symbolic numbers have one type, NaN wins, and a back end picks a zero. So floats
are compared as tensors; of an integer and a float the type is data-dependent.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from bcmend.dynamo import compat, fx_graph, handlers
from bcmend.dynamo.handlers import PASS, Answer, Call
from bcmend.dynamo.models import methods
from bcmend.dynamo.values import is_unbacked
from bcmend.tracing.numbers import float_tensors, scalars
from bcmend.tracing.sites import capture_mode

_KINDS = {torch.SymFloat: float, torch.SymInt: int, torch.SymBool: bool}


@handlers.method(
    compat.BuiltinVariable, methods.CALL_MIN_MAX, "`min` and `max` of numbers out of tensors"
)
def _pick(call: Call) -> Answer:
    """Answer which of two values is the smaller, or the larger one."""
    one, other = (None if each is None else each.realize() for each in call.args)
    if (is_unbacked(one) or is_unbacked(other)) and capture_mode.in_mended_code(call.tx):
        kinds = _kind(one), _kind(other)
        if kinds == (float, float):
            return _picked(call.tx, call.owner.fn, one, other)
        if None not in kinds and (kinds[0] is not kinds[1] or bool in kinds):
            handlers.break_graph(
                "an extreme of numbers of two types",
                call.owner.fn.__name__,
                "Which type the result has depends on the data.",
                hints=["Give both numbers one type, as in `max(0.0, x.item())`."],
            )
    return PASS


def _kind(value: Any) -> type | None:
    if isinstance(value, compat.SymNodeVariable):
        return _KINDS[type(value.sym_num)]
    return type(value.value) if isinstance(value, compat.ConstantVariable) else None


def _picked(tx: compat.Tracer, function: Any, one: Any, other: Any) -> Answer:
    first, second = _double(tx, one), _double(tx, other)
    is_beyond = operator.gt if function is max else operator.lt
    is_second = fx_graph.function(tx, is_beyond, second, first)
    return scalars.take(tx, fx_graph.function(tx, torch.where, is_second, second, first)) or PASS


def _double(tx: compat.Tracer, value: Any) -> Any:
    """Return a float as an operand of an operator of the graph."""
    is_known = isinstance(value, compat.ConstantVariable)
    return value.value if is_known else float_tensors.as_tensor(tx, value.as_proxy())
