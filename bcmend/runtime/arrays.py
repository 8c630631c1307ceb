"""``torch.tensor(array)`` of a numpy array that the graph has as a tensor.

Dynamo writes ``torch.tensor`` of that tensor into the graph, at which torch warns when the graph
runs, as eager execution does not.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._dynamo.variables import NumpyNdarrayVariable
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builder import wrap_fx_proxy

from bcmend.runtime.substitution import Call, answers_to

__all__: list[str] = []


@answers_to("tensor of array")
def _tensor(call: Call) -> VariableTracker | None:
    """``torch.tensor(array, dtype=None, device=None)``: a copy, without the array's memory."""
    if len(call.args) != 1 or not isinstance(call.args[0].realize(), NumpyNdarrayVariable):
        return None
    if not call.kwargs.keys() <= {"dtype", "device"}:
        return None
    if not all(each.is_python_constant() for each in call.kwargs.values()):
        return None
    given = {name: each.as_python_constant() for name, each in call.kwargs.items()}
    kind: dict[str, Any] = {name: each for name, each in given.items() if each is not None}
    kind.setdefault("device", torch.get_default_device())
    array = call.args[0].realize().as_proxy()
    proxy = call.tx.output.create_proxy("call_method", "to", (array,), {**kind, "copy": True})
    copied: VariableTracker = wrap_fx_proxy(call.tx, proxy)
    return copied
