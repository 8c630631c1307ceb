"""Recurrent layers, where the user asked for one graph.

Dynamo breaks the graph at ``RNN``, ``GRU`` and ``LSTM``, since a compiler writes their steps out
one by one, which takes its time for long sequences. Under ``fullgraph=True`` the alternative is an
error; in mended code they are traced there. Extends Dynamo's models of modules.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch._dynamo import config
from torch._dynamo.variables.builder import VariableBuilder

from bcmend.runtime import scalars

__all__ = ["install"]

_DYNAMOS: Final = VariableBuilder.wrap_module


def _wrap_module(self: Any, value: torch.nn.Module) -> Any:
    if isinstance(value, torch.nn.RNNBase) and _is_traced(self.tx, value):
        with config.patch(allow_rnn=True):
            return _DYNAMOS(self, value)
    return _DYNAMOS(self, value)


def _is_traced(tx: Any, layer: torch.nn.RNNBase) -> bool:
    """Not with dropout in between: nobody could tell from the graph that it draws numbers.

    Nor under autocast: AOTAutograd writes the steps out in other dtypes than those of the kernel.
    """
    draws = layer.training and layer.num_layers > 1 and layer.dropout != 0
    return bool(tx.one_graph) and scalars.may_take(tx) and not (draws or _casts())


def _casts() -> bool:
    """Whether autocast is on for any device, as the trace has it."""
    return bool(torch._C._is_any_autocast_enabled())


def install() -> None:
    """Let Dynamo ask here first."""
    VariableBuilder.wrap_module = _wrap_module  # type: ignore[method-assign]
