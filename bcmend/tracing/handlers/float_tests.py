"""``math.isnan`` and its like of numbers out of tensors: computed from the tensor of the number."""

from __future__ import annotations

from typing import Final

import torch

from bcmend.dynamo import compat, fx_graph
from bcmend.dynamo.handlers import PASS, Answer
from bcmend.dynamo.values import constant
from bcmend.tracing.numbers import float_tensors, scalars
from bcmend.tracing.substitutes.dispatch import Call, answers_to, require_one_graph

_TESTS: Final = {
    "math.isnan": torch.isnan,
    "math.isinf": torch.isinf,
    "math.isfinite": torch.isfinite,
}


@answers_to("float test")
def _tested(call: Call) -> Answer:
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
