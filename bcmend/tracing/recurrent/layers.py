"""``RNN``, ``GRU`` and ``LSTM`` where the user asked for one graph.

Dynamo breaks the graph there, since unrolling long sequences takes a compiler its time. Under
``fullgraph=True`` that is an error; in mended code the layers are traced instead.
"""

from __future__ import annotations

from typing import Any

import torch

from bcmend.dynamo import compat, hooks
from bcmend.dynamo.models import methods
from bcmend.tracing.sites import capture_mode


@hooks.around(
    compat.VariableBuilder,
    methods.WRAP_MODULE,
    "recurrent layers under fullgraph",
    gate=hooks.of_builder,
)
def _wrap_module(inner: Any, self: Any, value: torch.nn.Module) -> Any:
    if isinstance(value, torch.nn.RNNBase) and _is_traced(self.tx, value):
        with compat.dynamo_config.patch(allow_rnn=True):
            return inner(self, value)
    return inner(self, value)


def _is_traced(tx: compat.Tracer, layer: torch.nn.RNNBase) -> bool:
    """Return whether a layer is put into the graph.

    Not with dropout, since its random operators cannot be seen in the graph. Nor under autocast:
    AOTAutograd decomposes the layer in other dtypes than those of the kernel.
    """
    has_dropout = layer.training and layer.num_layers > 1 and layer.dropout != 0
    refused = has_dropout or compat._is_any_autocast_enabled()
    return bool(tx.one_graph) and capture_mode.in_mended_code(tx) and not refused
