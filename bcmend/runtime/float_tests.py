"""``math.isnan`` and its kin of numbers out of tensors: answered by the tensor of the number."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.tensor import SymNodeVariable

from bcmend.runtime import calls, doubles, scalars
from bcmend.runtime.merge import constant
from bcmend.runtime.substitution import Call, Refused, answers_to

__all__: list[str] = []

_TESTS: Final = {
    "math.isnan": torch.isnan,
    "math.isinf": torch.isinf,
    "math.isfinite": torch.isfinite,
}


@answers_to("float test")
def _tested(call: Call) -> VariableTracker | None:
    """Whether a number is NaN, infinite or finite."""
    tx: Any = call.tx
    (value,) = (each.realize() for each in call.args)
    if not isinstance(value, SymNodeVariable):
        return None
    if not scalars.may_take(tx):
        raise Refused("the graph may break")
    if not isinstance(value.sym_num, torch.SymFloat):
        return constant(call.row.name == "math.isfinite")
    number = doubles.as_tensor(tx, value.as_proxy())
    return scalars.take(tx, calls.function(tx, _TESTS[call.row.name], number.as_proxy()))
