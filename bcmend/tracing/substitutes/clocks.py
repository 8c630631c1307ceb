"""``time.time()`` and its like, read at their place in the graph.

The operator ``bcmend::clock`` has an effect in torch's sense (torch/_higher_order_ops/effects.py),
so that it is neither removed nor merged with another, and several keep their order. Inductor may
still move operations across it that depend on nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import torch

from bcmend.dynamo import fx_graph, operators
from bcmend.dynamo.handlers import PASS, Answer
from bcmend.tracing.numbers import scalars
from bcmend.tracing.substitutes.dispatch import ReplacedCall, answers_to, require_its_place

_CLOCKS: Final[dict[str, Callable[[], float]]] = {
    f"time.{name}": getattr(time, name)
    for kind in ("time", "perf_counter", "monotonic", "process_time", "thread_time")
    for name in (kind, f"{kind}_ns")
    if hasattr(time, name)
}


def _read(name: str) -> torch.Tensor:
    return torch.tensor(_CLOCKS[name](), dtype=_dtype(name), device="cpu")


def _fake(name: str) -> torch.Tensor:
    return torch.empty((), dtype=_dtype(name), device="cpu")


def _dtype(name: str) -> torch.dtype:
    return torch.int64 if name.endswith("_ns") else torch.float64


CLOCK: Final = operators.define("clock(str name) -> Tensor", _read, _fake)


@answers_to("clock")
def _clock(call: ReplacedCall) -> Answer:
    """Answer with the time as a data-dependent number."""
    if call.args or call.kwargs or call.row.name not in _CLOCKS:
        return PASS
    require_its_place(call.tx)
    return scalars.take(call.tx, fx_graph.function(call.tx, CLOCK, call.row.name)) or PASS
