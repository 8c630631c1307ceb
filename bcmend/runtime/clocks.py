"""``time.time()`` and its kin, read where they stand in the graph.

The operator ``bcmend::clock`` has an effect in torch's sense (torch/_higher_order_ops/effects.py),
so that it is neither removed nor read twice, and several keep their order. What lies between two of
them is up to the back end: Inductor may move operations that nothing else ties down.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import torch
from torch._dynamo.variables import TensorVariable
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builder import wrap_fx_proxy

from bcmend.runtime import operators, scalars
from bcmend.runtime.substitution import Call, Refused, answers_to, require_always

__all__ = ["CLOCK"]

_CLOCKS: Final[dict[str, Callable[[], float]]] = {
    f"time.{name}": getattr(time, name)
    for kind in ("time", "perf_counter", "monotonic", "process_time", "thread_time")
    for name in (kind, f"{kind}_ns")
    if hasattr(time, name)
}


def _read(name: str) -> torch.Tensor:
    dtype = torch.int64 if name.endswith("_ns") else torch.float64
    return torch.tensor(_CLOCKS[name](), dtype=dtype, device="cpu")


def _fake(name: str) -> torch.Tensor:
    dtype = torch.int64 if name.endswith("_ns") else torch.float64
    return torch.empty((), dtype=dtype, device="cpu")


CLOCK: Final = operators.define("clock(str name) -> Tensor", _read, _fake)


@answers_to("clock")
def _clock(call: Call) -> VariableTracker | None:
    """The time, as a number that only the data tell."""
    tx: Any = call.tx
    if call.args or call.kwargs or call.row.name not in _CLOCKS:
        return None
    if tx.export or not scalars.may_take(tx):
        raise Refused("the graph may break, or is exported")
    require_always(tx, "called")
    proxy = tx.output.create_proxy("call_function", CLOCK, (call.row.name,), {})
    moment = wrap_fx_proxy(tx, proxy)
    assert isinstance(moment, TensorVariable)
    return scalars.take(tx, moment)
