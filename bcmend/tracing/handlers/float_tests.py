"""Functions of ``math`` of numbers out of tensors.

``math.isnan`` and its like are computed from the tensor of the number. ``math.sqrt`` and others
raise for numbers out of their range, where an operator of a back end gives NaN or infinity.
"""

from __future__ import annotations

import math
from typing import Any, Final

import torch

from bcmend.dynamo import compat, frames, fx_graph, handlers
from bcmend.dynamo.handlers import PASS, Answer
from bcmend.dynamo.values import constant
from bcmend.tracing.numbers import float_tensors, scalars
from bcmend.tracing.substitutes.dispatch import ReplacedCall, answers_to, require_one_graph

_TESTS: Final = {
    "math.isnan": torch.isnan,
    "math.isinf": torch.isinf,
    "math.isfinite": torch.isfinite,
}

#: Those that torch has as operators of symbolic numbers, less those that are defined everywhere.
_PARTIAL: Final = (
    math.sqrt, math.log2, math.asin, math.acos, math.sin, math.cos, math.tan, math.sinh, math.cosh,
)  # fmt: skip


@answers_to("float test")
def _tested(call: ReplacedCall) -> Answer:
    """Answer whether a number is NaN, infinite or finite."""
    (value,) = (each.realize() for each in call.args)
    if not isinstance(value, compat.SymNodeVariable):
        return PASS
    require_one_graph(call.tx)
    if not isinstance(value.sym_num, torch.SymFloat):
        return constant(call.row.name == "math.isfinite")
    number = float_tensors.as_tensor(call.tx, value.as_proxy())
    test = _TESTS[call.row.name]
    return scalars.take(call.tx, fx_graph.function(call.tx, test, number.as_proxy())) or PASS


def _leave_to_python(call: handlers.Call) -> Answer:
    """End the graph if the argument may be out of the range of a function."""
    value = call.args[0].realize() if len(call.args) == 1 else None
    # After a break the number is an argument, of which torch makes an operator as well.
    code = frames.resumed(call.tx.f_code)
    if not isinstance(value, compat.SymNodeVariable) or not frames.is_of_patched(code):
        return PASS
    if call.tx.one_graph or (call.function is math.sqrt and _is_never_negative(value)):
        return PASS  # as stock has it where a break is an error
    handlers.break_graph(
        "a function of a number that may be out of its range",
        f"math.{call.name}",
        "Whether it raises depends on the data.",
        hints=[f"Compute it of the tensor, as in `torch.{call.name}(x).item()`."],
    )


def _is_never_negative(value: Any) -> bool:
    return bool(value.sym_num.node.expr.is_nonnegative)


for _each in _PARTIAL:
    handlers.function(_each, f"`math.{_each.__name__}` of numbers out of tensors")(_leave_to_python)
