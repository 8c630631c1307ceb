"""Backward functions of ``torch.autograd.Function`` that are traced with the forward of an arm.

Dynamo traces both at the call. What the backward changes happens when a backward pass is made, and
is no effect of the arm: the trace of the arm ends there.
"""

from __future__ import annotations

from typing import Any, Final

from bcmend.dynamo import compat, hooks
from bcmend.dynamo.models import methods
from bcmend.dynamo.slots import Slot
from bcmend.tracing.sites.refusal import Refusal

#: How many backward functions are being traced, one in another.
_DEPTH: Final[Slot[int]] = Slot(int, rolls_back=False)


@hooks.around(
    compat.AutogradFunctionApplyVariable,
    methods.TRACE_BACKWARD,
    "what a backward function changes is no effect of an arm",
)
def _trace_backward(inner: Any, variable: Any, tx: compat.Tracer, *args: Any, **kwargs: Any) -> Any:
    depth = _DEPTH.of(tx.output)
    _DEPTH.put(tx.output, depth + 1)
    try:
        return inner(variable, tx, *args, **kwargs)
    finally:
        _DEPTH.put(tx.output, depth)


def require_none(output: Any) -> None:
    """Refuse a change of an object by a backward function."""
    if _DEPTH.peek(output):
        raise Refusal("arm-effects", "a backward function changes an object")
